// How a table is dealt out to several stores: which store has which keys, and the copies between a
// whole tensor and a store's part of it. Plain data; any thread, nothing blocks.
//
// Ranges whose first replica is in the same store have all their replicas in the same stores. So
// what follows is said by `home`, the number of that store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "collective/ps/table.h"

namespace regroup::collective::ps {

// Stores, or homes, a bit each by number.
using StoreSet = std::uint64_t;
[[nodiscard]] constexpr StoreSet set_of(std::size_t store) { return StoreSet{1} << store; }
[[nodiscard]] constexpr bool contains(StoreSet set, std::size_t store) {
  return (set >> store & 1) != 0;
}
// The stores that have the ranges of `home`, of `stores`.
[[nodiscard]] constexpr StoreSet replicas_of(std::size_t home, std::size_t stores,
                                             std::uint32_t replicas) {
  StoreSet out = 0;
  for (std::uint32_t i = 0; i < replicas; ++i) out |= set_of((home + i) % stores);
  return out;
}

class TablePartition {
 public:
  // `spec`: of the whole table. `shards`: of all stores. `replicas`: 1 to `stores`.
  TablePartition(const TableSpec& spec, std::uint32_t stores, std::uint32_t shards,
                 std::uint32_t replicas = 1);

  [[nodiscard]] const TableSpec& spec() const { return spec_; }
  // The spec of the part that a store has.
  [[nodiscard]] TableSpec part(std::size_t store) const;
  // Homes that have a range. The first one is that of the first range.
  [[nodiscard]] const std::vector<std::size_t>& homes() const { return homes_; }
  [[nodiscard]] std::size_t home_of(std::uint64_t position) const;

  // The ids of a batch that go to one store, and their places in the batch.
  struct Part {
    std::vector<std::int64_t> ids;
    std::vector<std::size_t> places;
  };
  struct Split {
    std::vector<Part> parts;  // by store
    StoreSet homes = 0;       // of all ids
  };
  // Deals ids out to all stores of stores[home]. kInvalidArgument: an id is outside the table.
  [[nodiscard]] base::Result<Split> split(std::span<const std::int64_t> ids,
                                          std::span<const StoreSet> stores) const;

  // Of a dense table with elements of `element` bytes: copies a store's part of `whole` to `part`,
  // or the reverse, ranges of `homes` only.
  void gather(std::size_t store, std::size_t element, Input whole,
              std::vector<std::byte>& part) const;
  void scatter(std::size_t store, StoreSet homes, std::size_t element, Input part,
               Output whole) const;
  // True if the store's part is the whole table.
  [[nodiscard]] bool is_whole(std::size_t store) const;

 private:
  [[nodiscard]] std::size_t home_of_range(std::size_t range) const {
    return store_of_range(spec_.name, range, stores_);
  }
  // Calls visit(home, positions) for each range that a store has, in their order.
  template <class Visit>
  void each_range(std::size_t store, Visit visit) const;

  TableSpec spec_;
  std::uint32_t stores_;
  std::uint32_t shards_;
  std::uint32_t replicas_;
  std::vector<PositionRange> ranges_;  // of all stores, by position
  std::vector<std::size_t> homes_;
};

}  // namespace regroup::collective::ps
