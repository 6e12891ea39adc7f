// Where ranges lie and which servers serve them: plain data and pure functions. A range lies in a
// shard for ever; a shard moves between the servers of its host, as a whole and without a copy.
// docs/design/ps_lanes.md says why.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collective/ps/table.h"

namespace regroup::collective::ps {

// Which server serves each shard of a host. Decided by the agent.
struct View {
  std::uint64_t number = 0;              // grows by one with each change
  std::vector<std::uint32_t> servers;    // numbers, ascending
  std::vector<std::uint32_t> server_of;  // by shard
  bool operator==(const View&) const = default;
};

// What the tables that are placed already have in a shard.
struct ShardUse {
  std::uint64_t bytes = 0;
  std::uint64_t ranges = 0;
};
// The bytes that a range is expected to take: all of a dense or direct one, kHashRangeBytes of a
// hash table's, whose number of rows is not known.
inline constexpr std::uint64_t kHashRangeBytes = 1 << 20;
[[nodiscard]] std::uint64_t expected_bytes(const TableSpec& spec, PositionRange positions);

// The shard of each of a new table's ranges. `ranges`: their expected bytes. Every shard gets as
// many of them as every other, plus or minus one, so that each table's pushes are spread; one
// more, or the only one, goes to the shard with the fewest bytes, then ranges, then the lowest
// number. `shards` is not empty. Pure.
[[nodiscard]] std::vector<std::uint32_t> place_ranges(std::span<const std::uint64_t> ranges,
                                                      std::vector<ShardUse> shards);

// What a shard holds and does.
struct ShardLoad {
  std::uint64_t bytes = 0;    // used
  std::uint64_t updates = 0;  // pushes applied, in any period that is the same for all shards
};
struct ShardMove {
  std::uint32_t shard = 0;
  std::uint32_t from = 0;  // a server
  std::uint32_t to = 0;
  std::string why;  // a sentence
  bool operator==(const ShardMove&) const = default;
};
struct ShardPlacement {
  View view;  // the next one
  std::vector<ShardMove> moves;
};
// The view with `servers`, which are ascending and not empty. A shard's weight is the mean of its
// part of all bytes and its part of all updates. Shards of servers that are gone go to the lightest
// servers; then shards move from the heaviest server to the lightest one while that makes the
// heavier of the two at least 5 % lighter, or the lightest has no shard. A server for which no
// shard is left waits for one. Of `present`, server_of may be empty: no shard has a server yet.
// Pure.
[[nodiscard]] ShardPlacement place_shards(const View& present, std::vector<std::uint32_t> servers,
                                          std::span<const ShardLoad> shards);

}  // namespace regroup::collective::ps
