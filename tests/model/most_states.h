// Sanitizers make a search ten times slower, and find their faults in any part of it. The presets
// asan and tsan define REGROUP_MODEL_STATES: a search that has seen so many states ends there and
// counts as passed unless it has found a violation by then, also where a violation is expected
// further on. The preset dev looks at all states.
#pragma once

#include <cstddef>
#include <limits>

namespace regroup::model {

#ifdef REGROUP_MODEL_STATES
inline constexpr std::size_t kMostStates = REGROUP_MODEL_STATES;
#else
inline constexpr std::size_t kMostStates = std::numeric_limits<std::size_t>::max();
#endif

}  // namespace regroup::model
