// Layout: the step in two halves, which leaf 0 has; then for each leaf: 1, its number of samples in
// two halves, the CRC32C of their indices in two halves.
#include "elastic/ledger_marks.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>

namespace regroup::elastic {
namespace {

constexpr std::size_t kOfStep = 2;
constexpr std::size_t kOfLeaf = 5;
constexpr std::uint64_t kHalf = 1 << 16;

template <class T>
void store(std::span<std::byte> marks, std::size_t at, std::uint64_t value) {
  const T number = static_cast<T>(value);
  std::memcpy(marks.data() + at * sizeof(T), &number, sizeof(T));
}

// The element as a whole number; more than any mark can be if it is none.
template <class T>
std::uint64_t load(std::span<const std::byte> marks, std::size_t at) {
  T number = 0;
  std::memcpy(&number, marks.data() + at * sizeof(T), sizeof(T));
  const bool whole = number >= 0 && number <= T(1 << 24) && std::floor(number) == number;
  return whole ? static_cast<std::uint64_t>(number) : UINT32_MAX;
}

template <class T>
void store_halves(std::span<std::byte> marks, std::size_t at, std::uint64_t value) {
  store<T>(marks, at, value % kHalf);
  store<T>(marks, at + 1, value / kHalf % kHalf);
}

// False: not two halves.
template <class T>
bool load_halves(std::span<const std::byte> marks, std::size_t at, std::uint64_t* value) {
  const std::uint64_t low = load<T>(marks, at);
  const std::uint64_t high = load<T>(marks, at + 1);
  *value = high * kHalf + low;
  return low < kHalf && high < kHalf;
}

template <class T>
void write(std::span<std::byte> marks, proto::Step step, std::uint32_t leaf,
           const LeafRecord& record) {
  std::ranges::fill(marks, std::byte{0});
  if (leaf == 0) store_halves<T>(marks, 0, step);
  const std::size_t at = kOfStep + leaf * kOfLeaf;
  store<T>(marks, at, 1);
  store_halves<T>(marks, at + 1, record.samples);
  store_halves<T>(marks, at + 3, record.crc);
}

template <class T>
StepMarks read(std::span<const std::byte> marks, std::uint32_t shards) {
  StepMarks out;
  if (!load_halves<T>(marks, 0, &out.step)) out.step = 0;
  for (std::uint32_t leaf = 0; leaf < shards; ++leaf) {
    const std::size_t at = kOfStep + leaf * kOfLeaf;
    LeafRecord& record = out.leaves.emplace_back();
    std::uint64_t crc = 0;
    const bool whole = load_halves<T>(marks, at + 1, &record.samples) &
                       static_cast<int>(load_halves<T>(marks, at + 3, &crc));
    record.crc = static_cast<std::uint32_t>(crc);
    record.times = static_cast<std::uint32_t>(load<T>(marks, at));
    if (record.times == 1 && !whole) record.times = 0;
    if (record.times != 1) record.samples = record.crc = 0;
  }
  return out;
}

}  // namespace

std::uint64_t mark_elements(std::uint32_t shards) { return kOfStep + shards * kOfLeaf; }

void write_marks(std::span<std::byte> marks, collective::Dtype dtype, proto::Step step,
                 std::uint32_t leaf, const LeafRecord& record) {
  if (dtype == collective::Dtype::kFloat64) return write<double>(marks, step, leaf, record);
  write<float>(marks, step, leaf, record);
}

StepMarks read_marks(std::span<const std::byte> marks, collective::Dtype dtype,
                     std::uint32_t shards) {
  return dtype == collective::Dtype::kFloat64 ? read<double>(marks, shards)
                                              : read<float>(marks, shards);
}

}  // namespace regroup::elastic
