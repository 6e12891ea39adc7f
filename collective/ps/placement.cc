// Placement decides by numbers that all callers have; ties go to the lowest number.
#include "collective/ps/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "collective/ps/slices.h"
#include "collective/ps/store_layout.h"

namespace regroup::collective::ps {
namespace {

constexpr double kGain = 0.05;             // of the heavier server, so that a move is worth it
constexpr std::uint64_t kIndexBytes = 16;  // of a row

struct Held {
  double weight = 0;
  std::vector<std::uint32_t> shards;
};

std::vector<double> weights_of(std::span<const ShardLoad> shards) {
  const auto total = [&](std::uint64_t ShardLoad::*part) {
    return std::accumulate(shards.begin(), shards.end(), 0.0, [&](double sum, const ShardLoad& s) {
      return sum + static_cast<double>(s.*part);
    });
  };
  const double bytes = total(&ShardLoad::bytes), updates = total(&ShardLoad::updates);
  const double equal = 1.0 / static_cast<double>(shards.size());
  std::vector<double> out;
  for (const ShardLoad& shard : shards) {
    const double of_bytes = bytes > 0 ? static_cast<double>(shard.bytes) / bytes : equal;
    const double of_updates = updates > 0 ? static_cast<double>(shard.updates) / updates : equal;
    out.push_back((of_bytes + of_updates) / 2);
  }
  return out;
}

int percent(double part) { return static_cast<int>(std::lround(100 * part)); }

}  // namespace

std::uint64_t expected_bytes(const TableSpec& spec, PositionRange positions) {
  if (spec.kind == TableKind::kHash) return kHashRangeBytes;
  const std::uint64_t count = positions.last - positions.first + 1;
  if (spec.kind == TableKind::kDense) return 2 * SliceShape(spec, count).bytes;
  return count * (RowShape(spec).bytes + kIndexBytes);
}

std::vector<std::uint32_t> place_ranges(std::span<const std::uint64_t> ranges,
                                        std::vector<ShardUse> shards) {
  assert(!shards.empty());
  std::vector<std::uint64_t> of_table(shards.size());
  std::vector<std::uint32_t> out;
  for (const std::uint64_t bytes : ranges) {
    const auto before = [&](std::uint32_t a, std::uint32_t b) {
      return std::tuple(of_table[a], shards[a].bytes, shards[a].ranges, a) <
             std::tuple(of_table[b], shards[b].bytes, shards[b].ranges, b);
    };
    std::uint32_t best = 0;
    for (std::uint32_t i = 1; i < shards.size(); ++i) best = before(i, best) ? i : best;
    ++of_table[best];
    shards[best].bytes += bytes;
    ++shards[best].ranges;
    out.push_back(best);
  }
  return out;
}

ShardPlacement place_shards(const View& present, std::vector<std::uint32_t> servers,
                            std::span<const ShardLoad> shards) {
  assert(!servers.empty());
  const std::vector<double> weights = weights_of(shards);
  ShardPlacement out;
  out.view = {present.number + 1, servers, present.server_of};
  std::vector<std::uint32_t>& server_of = out.view.server_of;
  std::map<std::uint32_t, Held> held;
  for (const std::uint32_t server : servers) held[server];
  const auto give = [&](std::uint32_t shard, std::uint32_t to) {
    server_of[shard] = to;
    held[to].weight += weights[shard];
    held[to].shards.push_back(shard);
  };
  const auto lightest = [&] {
    return std::ranges::min_element(held, {}, [](const auto& one) {
      return std::tuple(one.second.weight, one.second.shards.size(), one.first);
    });
  };
  std::vector<std::uint32_t> left;  // without a server
  for (std::uint32_t shard = 0; shard < shards.size(); ++shard) {
    if (shard < present.server_of.size() && held.contains(present.server_of[shard])) {
      give(shard, present.server_of[shard]);
    } else {
      left.push_back(shard);
    }
  }
  server_of.resize(shards.size());
  std::ranges::stable_sort(left, [&](auto a, auto b) { return weights[a] > weights[b]; });
  for (const std::uint32_t shard : left) {
    const std::uint32_t to = lightest()->first;
    if (shard < present.server_of.size()) {
      const std::uint32_t from = present.server_of[shard];
      out.moves.push_back({shard, from, to, fmt::format("server {} leaves", from)});
    }
    give(shard, to);
  }
  // It ends: each move makes the sum of the squares of weights smaller, or the number of servers
  // without a shard.
  while (true) {
    auto from = held.end();
    for (auto at = held.begin(); at != held.end(); ++at) {
      if (at->second.shards.size() > 1 &&
          (from == held.end() || at->second.weight > from->second.weight))
        from = at;
    }
    const auto to = lightest();
    if (from == held.end() || to == from) break;
    const auto after = [&](std::uint32_t shard) {
      return std::max(from->second.weight - weights[shard], to->second.weight + weights[shard]);
    };
    const std::uint32_t best = *std::ranges::min_element(
        from->second.shards, {},
        [&](std::uint32_t shard) { return std::tuple(after(shard), shard); });
    if (!to->second.shards.empty() && after(best) > from->second.weight * (1 - kGain)) break;
    out.moves.push_back(
        {best, from->first, to->first,
         fmt::format("server {} has {} % of the load, server {} has {} %", from->first,
                     percent(from->second.weight), to->first, percent(to->second.weight))});
    std::erase(from->second.shards, best);
    from->second.weight -= weights[best];
    give(best, to->first);
  }
  return out;
}

}  // namespace regroup::collective::ps
