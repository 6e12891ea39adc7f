// How the processes of a group that run on one host come to share an arena.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/group/store.h"
#include "proto/world.h"
#include "shmem/arena.h"

namespace regroup::collective::group {

// One process of a group, as it describes itself to the others.
struct Process {
  // Equal for processes that can map each other's memory: same boot, PID namespace and user.
  std::string host;
  pid_t pid = 0;
};

// The calling process. `host`: for Process::host; "": derived.
[[nodiscard]] base::Result<Process> this_process(const std::string& host);

// All ranks of a group, each of which publishes itself, `own`. Blocks until all have done so.
// kDeadlineExceeded names the ranks that have not.
[[nodiscard]] base::Result<std::vector<Process>> exchange_processes(Store& store, int rank,
                                                                    int size, const Process& own,
                                                                    base::TimePoint deadline);

// The World of these processes, in rank order: hosts are nodes in the order of their first rank,
// and the ranks of a host have its slots in their order. kInvalidArgument: a host has more than
// proto::kMaxSlots ranks.
[[nodiscard]] base::Result<proto::World> world_of(const std::vector<Process>& processes);

// The arena of the host of rank `rank`, which has a slot for each of its ranks: the first of them
// creates it, the others open it. Blocks until it exists. kPeerLost: the process that created it
// has ended. Its tail has an equal part for each slot, most of which is address space only.
[[nodiscard]] base::Result<shmem::Arena> share_arena(Store& store, const proto::World& world,
                                                     const std::vector<Process>& processes,
                                                     int rank, base::TimePoint deadline);
// The part of slot `slot` in the tail of such an arena; empty if the arena has no tail.
[[nodiscard]] std::span<std::byte> tail_of_slot(const shmem::Arena& arena, proto::SlotIndex slot);

}  // namespace regroup::collective::group
