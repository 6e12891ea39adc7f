// The pause is as long as it takes to copy the rows in the order of the index; memory for them is
// there before, and they are sorted afterwards.
#include "collective/ps/range_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "collective/ps/index.h"
#include "collective/ps/init.h"
#include "collective/ps/reader.h"
#include "collective/ps/slices.h"

namespace regroup::collective::ps {
namespace {

constexpr std::size_t kAhead = 16;  // rows on their way into the cache

std::uint64_t elements_of(const PositionRange& range) { return range.last - range.first + 1; }

// Slots as the store has them, one after another.
struct RawRows {
  explicit RawRows(const RowShape& shape) : row(shape) {}
  [[nodiscard]] std::size_t size() const { return bytes.size() / row.bytes; }
  [[nodiscard]] const RowHeader* at(std::size_t i) const {
    return reinterpret_cast<const RowHeader*>(bytes.data() + i * row.bytes);
  }
  RowShape row;
  std::vector<std::byte> bytes;
};

// Slots of all rows; with `since`: of those with a greater LSN, and of some others. The index has
// the low 16 bits of a row's LSN.
std::vector<std::uint32_t> slots_in(const StoreMemory& memory, const RangeHeader& header,
                                    std::optional<std::uint64_t> since) {
  const std::uint64_t applied = header.applied.load(std::memory_order_acquire);
  std::vector<std::uint32_t> out;
  each_word_in_index(memory, IndexRoot::of(header.root.load(std::memory_order_acquire)),
                     [&](std::uint64_t word) {
                       const std::uint64_t age = (applied - word) & 0xffff;
                       if (!since || age < applied - *since) out.push_back(slot_of(word));
                     });
  return out;
}

base::Status outside(const RangeHeader& header) {
  return base::data_loss(
      fmt::format("store: a row of range {} lies outside its memory", header.id));
}

base::Status copy_raw(const StoreMemory& memory, const RangeHeader& header,
                      std::optional<std::uint64_t> since, RawRows& out) {
  const std::vector<std::uint32_t> slots = slots_in(memory, header, since);
  const std::size_t bytes = out.row.bytes;
  out.bytes.resize(slots.size() * bytes);
  std::size_t count = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (!memory.has(slots[i] * kSlotUnit, bytes)) return outside(header);
    if (i + kAhead < slots.size()) __builtin_prefetch(row_at(memory, slots[i + kAhead]));
    const RowHeader* const row = row_at(memory, slots[i]);
    if (since && row->lsn.load(std::memory_order_relaxed) <= *since) continue;
    std::memcpy(out.bytes.data() + count++ * bytes, row, bytes);
  }
  out.bytes.resize(count * bytes);
  return {};
}

void sort_rows(const RawRows& raw, RangeCopy& out) {
  const std::size_t count = raw.size();
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::size_t i) { return raw.at(i)->position; });
  out.positions.reserve(count);
  out.updates.reserve(count);
  out.values.resize(count * raw.row.value_bytes);
  out.state.resize(count * raw.row.state_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    const RowHeader* const row = raw.at(order[i]);
    const auto* const bytes = reinterpret_cast<const std::byte*>(row);
    out.positions.push_back(row->position);
    out.updates.push_back(row->updates);
    std::copy_n(bytes + RowShape::kValueAt, raw.row.value_bytes,
                out.values.data() + i * raw.row.value_bytes);
    std::copy_n(bytes + raw.row.state_at, raw.row.state_bytes,
                out.state.data() + i * raw.row.state_bytes);
  }
}

base::Result<RangeCopy> copy_dense(const StoreMemory& memory, const RangeHeader& header,
                                   RangeCopy out, base::TimePoint deadline) {
  const SliceShape shape(out.spec, elements_of(out.range));
  out.values.resize(shape.value_bytes);
  out.state.resize(shape.state_bytes);
  {
    REGROUP_ASSIGN_OR_RETURN(const ShardPause pause, ShardPause::take(memory, deadline));
    out.lsn = header.applied.load(std::memory_order_acquire);
    if (const std::uint64_t word = header.current.load(std::memory_order_acquire); word != 0) {
      const std::uint64_t at =
          header.slices.load(std::memory_order_relaxed) + (word & 1) * shape.bytes;
      if (!memory.has(at, shape.bytes)) {
        return base::data_loss(fmt::format("store: range {} lies outside its memory", header.id));
      }
      const std::byte* const from = memory.at(at);
      SliceHeader slice{};
      std::memcpy(&slice, from, sizeof slice);
      out.updates = {
          static_cast<std::uint32_t>(std::min<std::uint64_t>(slice.updates, UINT32_MAX))};
      std::memcpy(out.values.data(), from + sizeof slice, out.values.size());
      std::memcpy(out.state.data(), from + shape.state_at, out.state.size());
      return out;
    }
  }
  const auto& store = *reinterpret_cast<const StoreHeader*>(memory.at(0));
  return initial_copy(out.spec, out.range, store.job_seed);
}

}  // namespace

RangeCopy initial_copy(const TableSpec& spec, PositionRange range, std::uint64_t job_seed) {
  RangeCopy out{.spec = spec, .range = range, .updates = {0}};
  const SliceShape shape(spec, elements_of(range));
  out.values.resize(shape.value_bytes);
  out.state.resize(shape.state_bytes);
  const InitialRows initial(job_seed, spec);
  const std::size_t size = size_of(spec.dtype);
  for (std::uint64_t i = 0; i < elements_of(range); ++i)
    initial.fill(range.first + i, 0, {out.values.data() + i * size, size});
  return out;
}

base::Result<RangeChanges> count_changes(const StoreMemory& memory, const RangeHeader& header,
                                         std::uint64_t since, base::TimePoint deadline) {
  REGROUP_ASSIGN_OR_RETURN(const TableSpec spec, spec_of(header));
  RangeChanges out;
  if (spec.kind == TableKind::kDense) {
    out.lsn = header.applied.load(std::memory_order_acquire);
    out.all = SliceShape(spec, elements_of(header.positions)).bytes;
    out.changed = out.lsn > since ? out.all : 0;
    return out;
  }
  const std::uint64_t bytes = RowShape(spec).bytes;
  REGROUP_ASSIGN_OR_RETURN(const ShardPause pause, ShardPause::take(memory, deadline));
  out.lsn = header.applied.load(std::memory_order_acquire);
  out.all = slots_in(memory, header, {}).size() * bytes;
  const std::vector<std::uint32_t> slots = slots_in(memory, header, since);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (!memory.has(slots[i] * kSlotUnit, bytes)) return outside(header);
    if (i + kAhead < slots.size()) __builtin_prefetch(row_at(memory, slots[i + kAhead]));
    const bool changed = row_at(memory, slots[i])->lsn.load(std::memory_order_relaxed) > since;
    out.changed += changed ? bytes : 0;
  }
  return out;
}

void note_saved(const StoreMemory& memory, const RangeHeader& header, std::uint64_t lsn,
                std::uint64_t step) {
  const auto at = reinterpret_cast<const std::byte*>(&header) - memory.at(0);
  auto& own = *reinterpret_cast<RangeHeader*>(memory.at(static_cast<std::uint64_t>(at)));
  own.saved_step.store(0, std::memory_order_release);
  own.saved_lsn.store(lsn, std::memory_order_release);
  own.saved_step.store(step, std::memory_order_release);
}

std::optional<std::uint64_t> saved_lsn(const RangeHeader& header, std::uint64_t step) {
  if (step == 0 || header.saved_step.load(std::memory_order_acquire) != step) return std::nullopt;
  return header.saved_lsn.load(std::memory_order_acquire);
}

base::Result<RangeCopy> copy_range(const StoreMemory& memory, const RangeHeader& header,
                                   base::TimePoint deadline, std::optional<std::uint64_t> since) {
  REGROUP_ASSIGN_OR_RETURN(TableSpec spec, spec_of(header));
  RangeCopy out{.spec = std::move(spec), .range = header.positions};
  if (out.spec.kind == TableKind::kDense)
    return copy_dense(memory, header, std::move(out), deadline);
  RawRows raw{RowShape(out.spec)};
  {
    REGROUP_ASSIGN_OR_RETURN(const ShardPause pause, ShardPause::take(memory, deadline));
    raw.bytes.reserve(slots_in(memory, header, since).size() * raw.row.bytes);
  }
  raw.bytes.resize(raw.bytes.capacity());
  {
    REGROUP_ASSIGN_OR_RETURN(const ShardPause pause, ShardPause::take(memory, deadline));
    out.lsn = header.applied.load(std::memory_order_acquire);
    REGROUP_RETURN_IF_ERROR(copy_raw(memory, header, since, raw));
  }
  sort_rows(raw, out);
  return out;
}

}  // namespace regroup::collective::ps
