// Reads a range from a mapping of its store, in the server or, read-only, in any process of the
// host while the server writes: rows are copied, then the index word and the row's LSN are read
// again; what has changed is copied again.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "collective/ps/init.h"
#include "collective/ps/slices.h"
#include "collective/ps/store_layout.h"

namespace regroup::collective::ps {

// Reads the spec of a range out of its header. kDataLoss: magic or CRC is wrong.
[[nodiscard]] base::Result<TableSpec> spec_of(const RangeHeader& header);

class RangeReader {
 public:
  // `header` lies in `memory`, which must outlive the reader.
  [[nodiscard]] static base::Result<RangeReader> open(const StoreMemory& memory,
                                                      const RangeHeader& header);

  [[nodiscard]] const TableSpec& spec() const { return spec_; }
  [[nodiscard]] PositionRange positions() const { return header_->positions; }
  // The LSN of the last push that is applied as a whole. Rows may be newer.
  [[nodiscard]] std::uint64_t applied() const {
    return header_->applied.load(std::memory_order_acquire);
  }

  // Copies the rows at `positions` to `rows`, value_bytes() each; initial rows where nothing was
  // pushed. Each row is of one moment, different rows may be of different ones. `lsns`: if not
  // empty, receives the LSN of each row, 0 of an initial one. kInvalidArgument: a position outside
  // the range, or a dense one. kUnavailable: a row changed during each of many attempts, or lies in
  // a segment that is not mapped here. Any thread; does not block.
  [[nodiscard]] base::Status gather(std::span<const std::uint64_t> positions,
                                    std::span<std::byte> rows,
                                    std::span<std::uint64_t> lsns = {}) const;
  // The same, but the row at positions[i] goes to row places[i] of `rows`, which may have others.
  [[nodiscard]] base::Status gather_to(std::span<const std::uint64_t> positions,
                                       std::span<const std::uint32_t> places,
                                       std::span<std::byte> rows) const;
  // Copies a dense range, all of one moment. Returns its LSN, 0 for initial values. Errors as
  // gather().
  [[nodiscard]] base::Result<std::uint64_t> copy_slice(std::span<std::byte> values) const;

 private:
  static constexpr std::size_t kBatch = 64;

  RangeReader(const StoreMemory& memory, const RangeHeader& header, TableSpec spec);
  // Copies up to kBatch rows, row i to place(i); a bit of the result for each that has to be copied
  // again.
  template <class Place>
  [[nodiscard]] std::uint64_t copy_batch(std::span<const std::uint64_t> positions, Place place,
                                         std::uint64_t* lsns, std::uint64_t wanted) const;
  template <class Place>
  [[nodiscard]] base::Status gather_rows(std::span<const std::uint64_t> positions, Place place,
                                         std::uint64_t* lsns) const;

  const StoreMemory* memory_;
  const RangeHeader* header_;
  TableSpec spec_;
  RowShape row_;
  InitialRows initial_;
};

}  // namespace regroup::collective::ps
