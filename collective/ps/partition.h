// How a table is dealt out to several stores: which store has which keys, and the copies between a
// whole tensor and a store's part of it. Plain data; any thread, nothing blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "collective/ps/table.h"

namespace regroup::collective::ps {

class TablePartition {
 public:
  // `spec`: of the whole table. `shards`: of all stores.
  TablePartition(const TableSpec& spec, std::uint32_t stores, std::uint32_t shards);

  [[nodiscard]] const TableSpec& spec() const { return spec_; }
  // The spec of the part that a store has.
  [[nodiscard]] TableSpec part(std::size_t store) const;
  // Stores that have a range, ascending. One: it has all.
  [[nodiscard]] const std::vector<std::size_t>& stores() const { return with_ranges_; }
  [[nodiscard]] std::size_t store_of(std::uint64_t position) const;

  // The ids of a batch that one store has, and their places in the batch.
  struct Part {
    std::vector<std::int64_t> ids;
    std::vector<std::size_t> places;
  };
  // By store. kInvalidArgument: an id is outside the table.
  [[nodiscard]] base::Result<std::vector<Part>> split(std::span<const std::int64_t> ids) const;

  // Of a dense table with elements of `element` bytes: copies a store's part of `whole` to `part`,
  // or the reverse.
  void gather(std::size_t store, std::size_t element, Input whole,
              std::vector<std::byte>& part) const;
  void scatter(std::size_t store, std::size_t element, Input part, Output whole) const;

 private:
  [[nodiscard]] std::size_t store_of_range(std::size_t range) const {
    return ps::store_of_range(spec_.name, range, stores_);
  }
  // Calls visit(positions) for each range that a store has, in their order.
  template <class Visit>
  void each_range(std::size_t store, Visit visit) const;

  TableSpec spec_;
  std::uint32_t stores_;
  std::uint32_t shards_;
  std::vector<PositionRange> ranges_;  // of all stores, by position
  std::vector<std::size_t> with_ranges_;
};

}  // namespace regroup::collective::ps
