// Which cores members may run on, and whether each member can have one for itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/shm/bounce_buffer.h"

namespace regroup::collective {

using Cores = std::array<std::uint64_t, kMaxCores / 64>;  // a bit each

// Those that the calling thread may run on; none if the machine has more than kMaxCores.
[[nodiscard]] Cores own_cores();

[[nodiscard]] std::size_t count(const Cores& cores);

// Whether each of `ranks` members can have a core for itself, of whom those in `cores` may run on these, and
// others wherever they like. To no set of cores among them, nor to all cores together, are more members
// confined than it has cores: if of any two sets that meet one holds the other, that is all there is to it.
[[nodiscard]] bool suffice(std::span<const Cores> cores, std::size_t ranks);

}  // namespace regroup::collective
