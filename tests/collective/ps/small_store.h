// A store of a few small segments, and pushes whose effect is known.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "collective/ps/store.h"

namespace regroup::collective::ps::testing {

struct SmallStore {
  explicit SmallStore(std::uint64_t segment_bytes = 512 << 10, std::uint32_t most = 8,
                      std::uint64_t ring_bytes = 32 << 10) {
    base::Result<base::Fd> made = make_segment(segment_bytes);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    segments.push_back(std::move(*made));
    base::Result<StoreMemory> opened =
        StoreMemory::open(segments[0].get(), most, StoreMemory::Mode::kWrite);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    memory = std::move(*opened);
    const base::Status status =
        format_store(memory, {.job_seed = 7, .ring_bytes = ring_bytes, .most_segments = most});
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  void grow() {
    base::Result<base::Fd> made = make_segment(memory.segment_bytes());
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    segments.push_back(std::move(*made));
    ASSERT_TRUE(memory.add(segments.back().get()).ok());
  }
  // A mapping of all segments, as another process has it.
  [[nodiscard]] StoreMemory map(StoreMemory::Mode mode) const {
    base::Result<StoreMemory> opened =
        StoreMemory::open(segments[0].get(), memory.most_segments(), mode);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    for (std::size_t i = 1; i < segments.size(); ++i)
      EXPECT_TRUE(opened->add(segments[i].get()).ok());
    return std::move(*opened);
  }

  std::vector<base::Fd> segments;
  StoreMemory memory;
};

// What a push carries, with memory of its own.
struct OwnedPush {
  Push push;
  std::vector<std::uint64_t> positions;
  std::vector<std::byte> gradients;
  [[nodiscard]] Push get() const {
    Push out = push;
    out.positions = positions;
    out.gradients = gradients;
    return out;
  }
};
template <class T>
OwnedPush push_of(std::uint64_t client, std::uint64_t number, std::uint64_t previous,
                  std::vector<std::uint64_t> positions, const std::vector<T>& gradients,
                  double lr = 0) {
  OwnedPush out;
  out.push = {.client = client, .number = number, .previous = previous, .scalars = {.lr = lr}};
  out.positions = std::move(positions);
  out.gradients.resize(gradients.size() * sizeof(T));
  std::memcpy(out.gradients.data(), gradients.data(), out.gradients.size());
  return out;
}

// The values at `positions`, or of a dense range.
template <class T>
std::vector<T> values_of(const RangeReader& reader, const std::vector<std::uint64_t>& positions) {
  const bool dense = reader.spec().kind == TableKind::kDense;
  const std::size_t rows =
      dense ? reader.positions().last - reader.positions().first + 1 : positions.size();
  std::vector<T> out(rows * reader.spec().value_bytes() / sizeof(T));
  const auto bytes = std::as_writable_bytes(std::span(out));
  const base::Status status =
      dense ? reader.copy_slice(bytes).status() : reader.gather(positions, bytes);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return out;
}

}  // namespace regroup::collective::ps::testing
