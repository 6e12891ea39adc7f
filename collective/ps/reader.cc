// Optimistic reads of rows and slices.
#include "collective/ps/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/cpu.h"
#include "base/crc32c.h"
#include "collective/ps/index.h"

namespace regroup::collective::ps {
namespace {

constexpr int kMostAttempts = 10'000;    // to copy up to 64 rows
constexpr int kMostSliceAttempts = 100;  // to copy up to 4 MiB

std::uint64_t job_seed_of(const StoreMemory& memory) {
  return reinterpret_cast<const StoreHeader*>(memory.at(0))->job_seed;
}

}  // namespace

base::Result<TableSpec> spec_of(const RangeHeader& header) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&header.positions);
  const auto* const end =
      reinterpret_cast<const std::byte*>(header.name.data() + header.name.size());
  if (header.magic != RangeHeader::kMagic || header.crc != base::crc32c({begin, end}) ||
      header.name.back() != 0) {
    return base::data_loss(fmt::format("store: the header of range {} is damaged", header.id));
  }
  TableSpec spec{.name = header.name.data(),
                 .kind = header.kind,
                 .rows = header.rows,
                 .dim = header.dim,
                 .dtype = header.dtype,
                 .init = header.init,
                 .optimizer = header.optimizer,
                 .evict_after = header.evict_after,
                 .part = header.part};
  REGROUP_RETURN_IF_ERROR(check(spec));
  return spec;
}

base::Result<RangeReader> RangeReader::open(const StoreMemory& memory, const RangeHeader& header) {
  REGROUP_ASSIGN_OR_RETURN(TableSpec spec, spec_of(header));
  return RangeReader(memory, header, std::move(spec));
}

RangeReader::RangeReader(const StoreMemory& memory, const RangeHeader& header, TableSpec spec)
    : memory_(&memory),
      header_(&header),
      spec_(std::move(spec)),
      row_(spec_),
      initial_(job_seed_of(memory), spec_) {}

template <class Place>
std::uint64_t RangeReader::copy_batch(std::span<const std::uint64_t> positions, Place place_of,
                                      std::uint64_t* lsns, std::uint64_t wanted) const {
  struct Copied {
    const RowHeader* row = nullptr;
    std::uint64_t lsn = 0;
    IndexPlace place;
  };
  std::array<Copied, kBatch> copied;
  const std::uint64_t root = header_->root.load(std::memory_order_acquire);
  std::uint64_t again = 0;
  const IndexRoot index = IndexRoot::of(root);
  for (const std::uint64_t position : positions) prefetch_index(*memory_, index, position);
  for (const std::uint64_t position : positions)
    prefetch_row(*memory_, index, position, RowShape::kValueAt + row_.value_bytes);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    if ((wanted >> i & 1) == 0) continue;
    IndexPlace& place = copied[i].place;
    place = find_in_index(*memory_, index, positions[i]);
    if (place.word == nullptr) continue;
    copied[i].row = row_at(*memory_, slot_of(place.value));
    if (!memory_->has(slot_of(place.value) * kSlotUnit, row_.bytes)) place.sane = false;
  }
  for (std::size_t i = 0; i < positions.size(); ++i) {
    Copied& one = copied[i];
    if ((wanted >> i & 1) == 0 || !one.place.sane || one.row == nullptr) continue;
    one.lsn = one.row->lsn.load(std::memory_order_acquire);
    std::memcpy(place_of(i), reinterpret_cast<const std::byte*>(one.row) + RowShape::kValueAt,
                row_.value_bytes);
    if (one.row->position != positions[i]) one.place.sane = false;
  }
  // The copies are performed before the words are read again.
  base::full_fence();
  const bool same_root = header_->root.load(std::memory_order_acquire) == root;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    if ((wanted >> i & 1) == 0) continue;
    const Copied& one = copied[i];
    const bool there = one.row != nullptr;
    if (!same_root || !one.place.sane ||
        (there && (one.place.word->load(std::memory_order_relaxed) != one.place.value ||
                   one.row->lsn.load(std::memory_order_relaxed) != one.lsn))) {
      again |= 1ULL << i;
      continue;
    }
    if (!there) initial_.fill(positions[i], 0, {place_of(i), row_.value_bytes});
    if (lsns != nullptr) lsns[i] = one.lsn;
  }
  return again;
}

base::Status RangeReader::gather(std::span<const std::uint64_t> positions,
                                 std::span<std::byte> rows, std::span<std::uint64_t> lsns) const {
  if (spec_.kind == TableKind::kDense) {
    return base::invalid_argument(
        fmt::format("pull of table {}: it is dense and has no rows; copy its slices", spec_.name));
  }
  if (rows.size() != positions.size() * row_.value_bytes ||
      (!lsns.empty() && lsns.size() != positions.size())) {
    return base::invalid_argument(
        fmt::format("pull of table {}: expected {} bytes for {} keys, got {}", spec_.name,
                    positions.size() * row_.value_bytes, positions.size(), rows.size()));
  }
  const auto place = [&](std::size_t i) { return rows.data() + i * row_.value_bytes; };
  return gather_rows(positions, place, lsns.empty() ? nullptr : lsns.data());
}

base::Status RangeReader::gather_to(std::span<const std::uint64_t> positions,
                                    std::span<const std::uint32_t> places,
                                    std::span<std::byte> rows) const {
  assert(places.size() == positions.size());
  const auto place = [&](std::size_t i) {
    assert((places[i] + 1) * row_.value_bytes <= rows.size());
    return rows.data() + places[i] * row_.value_bytes;
  };
  return gather_rows(positions, place, nullptr);
}

template <class Place>
base::Status RangeReader::gather_rows(std::span<const std::uint64_t> positions, Place place,
                                      std::uint64_t* lsns) const {
  for (std::size_t at = 0; at < positions.size(); at += kBatch) {
    const auto batch = positions.subspan(at, std::min(kBatch, positions.size() - at));
    for (const std::uint64_t position : batch) {
      if (header_->positions.has(position)) continue;
      return base::invalid_argument(fmt::format(
          "pull of table {}: expected positions from {} to {} in range {}, got {}", spec_.name,
          header_->positions.first, header_->positions.last, header_->id, position));
    }
    std::uint64_t left = batch.size() == 64 ? ~0ULL : (1ULL << batch.size()) - 1;
    for (int attempt = 0; left != 0; ++attempt) {
      if (attempt == kMostAttempts) {
        return base::unavailable(
            fmt::format("pull of table {}: rows of range {} change faster than they can be read, "
                        "or lie in a segment that is not mapped; ask the server",
                        spec_.name, header_->id));
      }
      left = copy_batch(
          batch, [&](std::size_t i) { return place(at + i); },
          lsns == nullptr ? nullptr : lsns + at, left);
    }
  }
  return {};
}

base::Result<std::uint64_t> RangeReader::copy_slice(std::span<std::byte> values) const {
  const std::uint64_t elements = header_->positions.last - header_->positions.first + 1;
  const SliceShape shape(spec_, elements);
  if (values.size() != shape.value_bytes) {
    return base::invalid_argument(
        fmt::format("pull of table {}: expected {} bytes for the {} elements of range {}, got {}",
                    spec_.name, shape.value_bytes, elements, header_->id, values.size()));
  }
  for (int attempt = 0; attempt < kMostSliceAttempts; ++attempt) {
    const std::uint64_t word = header_->current.load(std::memory_order_acquire);
    if (word == 0) {
      for (std::uint64_t i = 0; i < elements; ++i) {
        initial_.fill(header_->positions.first + i, 0,
                      values.subspan(i * size_of(spec_.dtype), size_of(spec_.dtype)));
      }
      return std::uint64_t{0};
    }
    const std::uint64_t offset =
        header_->slices.load(std::memory_order_relaxed) + (word & 1) * shape.bytes;
    if (!memory_->has(offset, shape.bytes)) break;
    std::memcpy(values.data(), memory_->at(offset) + sizeof(SliceHeader), values.size());
    base::full_fence();
    if (header_->current.load(std::memory_order_relaxed) == word) return word >> 1;
  }
  return base::unavailable(
      fmt::format("pull of table {}: range {} changes faster than it can be read, or lies in a "
                  "segment that is not mapped; ask the server",
                  spec_.name, header_->id));
}

}  // namespace regroup::collective::ps
