// Which cores each member may run on, and whether every member can have a core of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/shm/bounce_buffer.h"

namespace regroup::collective::shm {

using Cores = std::array<std::uint64_t, kMaxCores / 64>;  // a bit each

// The cores that the calling thread may run on; empty if the machine has more than kMaxCores.
[[nodiscard]] Cores own_cores();

[[nodiscard]] std::size_t count(const Cores& cores);

// True when each of `ranks` members can have a core of its own. `cores`: the affinity sets that are
// known; members without one may run anywhere. Checked: no set, and not the union of all sets,
// confines more members than it has cores. That is exact when any two sets are disjoint or nested.
[[nodiscard]] bool suffice(std::span<const Cores> cores, std::size_t ranks);

}  // namespace regroup::collective::shm
