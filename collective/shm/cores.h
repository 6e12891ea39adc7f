// The cores on which each member may run, and whether every member can have a core of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/shm/bounce_buffer.h"

namespace regroup::collective::shm {

using Cores = std::array<std::uint64_t, kMaxCores / 64>;  // one bit per core

// The cores on which the calling thread may run; empty if the machine has more than kMaxCores.
[[nodiscard]] Cores own_cores();

// Number of cores in the set.
[[nodiscard]] std::size_t count(const Cores& cores);

// True if each of `ranks` members can have a core of its own. `cores`: the known affinity sets; a
// member without one may run anywhere. Checks that no set, nor the union of all sets, confines more
// members than it has cores; exact if any two sets are disjoint or nested.
[[nodiscard]] bool suffice(std::span<const Cores> cores, std::size_t ranks);

}  // namespace regroup::collective::shm
