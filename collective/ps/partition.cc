// Looks positions up in the cut of a table.
#include "collective/ps/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace regroup::collective::ps {

TablePartition::TablePartition(const TableSpec& spec, std::uint32_t stores, std::uint32_t shards,
                               std::uint32_t replicas)
    : spec_(spec),
      stores_(stores),
      shards_(shards),
      replicas_(replicas),
      ranges_(ranges_of(spec, shards)) {
  // They take turns.
  for (std::size_t range = 0; range < std::min<std::size_t>(ranges_.size(), stores); ++range)
    homes_.push_back(home_of_range(range));
}

TableSpec TablePartition::part(std::size_t store) const {
  TableSpec out = spec_;
  out.part = {.number = static_cast<std::uint32_t>(store),
              .of = stores_,
              .shards = shards_,
              .replicas = replicas_};
  return out;
}

bool TablePartition::is_whole(std::size_t store) const {
  return std::ranges::all_of(homes_, [&](std::size_t home) {
    return contains(replicas_of(home, stores_, replicas_), store);
  });
}

std::size_t TablePartition::home_of(std::uint64_t position) const {
  const auto after = std::ranges::upper_bound(ranges_, position, {}, &PositionRange::first);
  return home_of_range(static_cast<std::size_t>(after - ranges_.begin()) - 1);
}

base::Result<TablePartition::Split> TablePartition::split(std::span<const std::int64_t> ids,
                                                          std::span<const StoreSet> stores) const {
  Split out{.parts = std::vector<Part>(stores_)};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t position = position_of(spec_.kind, ids[i]);
    if (spec_.kind != TableKind::kHash && position >= spec_.rows) {
      return base::invalid_argument(
          fmt::format("table {}: expected ids from 0 to {}, got {} (position {} of the batch)",
                      spec_.name, spec_.rows - 1, ids[i], i));
    }
    const std::size_t home = home_of(position);
    out.homes |= set_of(home);
    for (StoreSet to = stores[home]; to != 0; to &= to - 1) {
      Part& part = out.parts[static_cast<std::size_t>(std::countr_zero(to))];
      part.ids.push_back(ids[i]);
      part.places.push_back(i);
    }
  }
  return out;
}

template <class Visit>
void TablePartition::each_range(std::size_t store, Visit visit) const {
  for (std::size_t range = 0; range < ranges_.size(); ++range) {
    const std::size_t home = home_of_range(range);
    if (contains(replicas_of(home, stores_, replicas_), store)) visit(home, ranges_[range]);
  }
}

void TablePartition::gather(std::size_t store, std::size_t element, Input whole,
                            std::vector<std::byte>& part) const {
  part.clear();
  each_range(store, [&](std::size_t /*home*/, const PositionRange& range) {
    const Input slice =
        whole.subspan(range.first * element, (range.last - range.first + 1) * element);
    part.insert(part.end(), slice.begin(), slice.end());
  });
}

void TablePartition::scatter(std::size_t store, StoreSet homes, std::size_t element, Input part,
                             Output whole) const {
  std::size_t at = 0;
  each_range(store, [&](std::size_t home, const PositionRange& range) {
    const std::size_t bytes = (range.last - range.first + 1) * element;
    if (contains(homes, home))
      std::memcpy(whole.data() + range.first * element, part.data() + at, bytes);
    at += bytes;
  });
}

}  // namespace regroup::collective::ps
