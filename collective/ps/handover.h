// How the memory of a host's parameter server is handed over: by descriptors of sealed memfds,
// which the agent (or a test) makes and keeps, so that the memory outlives every server. Servers
// and clients inherit the descriptors and get their numbers as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "collective/ps/segment.h"

namespace regroup::collective::ps {

// Descriptors of a shard: a store, which one thread of a server writes, and the lanes to it.
struct ShardMemory {
  int lanes = -1;
  std::vector<int> segments;  // in the order of the store; at least one
  bool operator==(const ShardMemory&) const = default;
};
// Descriptors of a host's shards, in their order. The owner of the descriptors is the caller.
struct ServerMemory {
  std::vector<ShardMemory> shards;
  bool operator==(const ServerMemory&) const = default;
};

// "LANES:SEGMENT,SEGMENT..." for each shard, separated by semicolons: "5:6,7;8:9,10".
[[nodiscard]] std::string to_text(const ServerMemory& memory);
// The inverse of to_text(). kInvalidArgument: `text` is none.
[[nodiscard]] base::Result<ServerMemory> parse_server_memory(std::string_view text);

inline constexpr std::uint32_t kMaxShards = 64;  // threads of a server

struct ServerMemorySpec {
  std::uint64_t job_seed = 0;
  std::uint32_t shards = 1;    // threads of a server; 1 to kMaxShards
  std::uint32_t segments = 4;  // of each shard
  std::uint64_t segment_bytes = kSegmentBytes;
  std::uint64_t ring_bytes = 32 << 20;  // of each shard's log
  std::uint32_t lanes = 64;             // of each shard: clients that may be attached at a time
  std::uint64_t lane_bytes = 16 << 20;  // for pushes of one client to one shard
};
// Cuts `bytes` for each of `shards` into segments: at most 32, and so few that the descriptors of
// all shards fit into one message. A shard gets at least kSegmentBytes, at most kMaxStoreBytes, and
// else no byte less than `bytes`.
[[nodiscard]] ServerMemorySpec cut_into_segments(std::uint64_t bytes, std::uint32_t shards);

// The memory and its owner.
struct OwnedServerMemory {
  [[nodiscard]] ServerMemory get() const;
  struct Shard {
    base::Fd lanes;
    std::vector<base::Fd> segments;
  };
  std::vector<Shard> shards;
};
// Makes the memory of a host's parameter server: empty stores, no client. The descriptors close on
// exec. kInvalidArgument: the numbers do not fit together. kResourceExhausted: not enough memory.
// Blocks to reserve the segments; the memory of lanes is reserved when a client takes one.
[[nodiscard]] base::Result<OwnedServerMemory> make_server_memory(const ServerMemorySpec& spec);

}  // namespace regroup::collective::ps
