// Assigns the copy of a World's state to its joining members: pure functions of the World. On a
// host with donors (members that have the state) each of them writes a share into the host's
// snapshot. On any other host the joining member of lowest rank, the fetcher, receives all shares
// of one such host, its source, and writes them into the snapshot. docs/design/elastic_hosts.md.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/world.h"
#include "shmem/arena.h"

namespace regroup::elastic {

[[nodiscard]] bool has_joining_members(const proto::World& world);
// The members on `node` that have the state of the step it resumes from, in rank order.
[[nodiscard]] std::vector<proto::SlotId> holders_on(const proto::World& world, proto::NodeId node);
// All members on `node`, in rank order. They have the state of every step after the one the World
// resumes from, since none is committed without their votes.
[[nodiscard]] std::vector<proto::SlotId> members_on(const proto::World& world, proto::NodeId node);
// True if rank 0 has the state of the step that the World resumes from.
[[nodiscard]] bool rank_0_has_state(const proto::World& world);
// The members that write the snapshot of `node`, in rank order; none if no member needs it.
[[nodiscard]] std::vector<proto::SlotId> writers_of_snapshot(const proto::World& world,
                                                             proto::NodeId node);
// Rank of the fetcher of `node`, if it has one.
[[nodiscard]] std::optional<int> fetcher_of(const proto::World& world, proto::NodeId node);
// The host whose snapshot the fetcher of `node` receives.
[[nodiscard]] proto::NodeId source_of(const proto::World& world, proto::NodeId node);
// Ranks of the fetchers of all hosts.
[[nodiscard]] std::vector<int> all_fetchers(const proto::World& world);
// Ranks of the fetchers that receive the snapshot of `node`.
[[nodiscard]] std::vector<int> fetchers_from(const proto::World& world, proto::NodeId node);

struct Chunks {
  // Of shmem::kSnapshotChunk bytes each.
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
[[nodiscard]] constexpr std::uint64_t chunks_of(std::uint64_t bytes) {
  return (bytes + shmem::kSnapshotChunk - 1) / shmem::kSnapshotChunk;
}
// The chunks of writer `writer` of `writers`, of a state of `used` bytes.
[[nodiscard]] constexpr Chunks share_of(std::size_t writer, std::size_t writers,
                                        std::uint64_t used) {
  return {chunks_of(used) * writer / writers, chunks_of(used) * (writer + 1) / writers};
}

}  // namespace regroup::elastic
