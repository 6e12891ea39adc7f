// What a target demands of a result.
#pragma once

#include <cstdlib>

namespace regroup::fuzz {

// Ends the process where `holds` is false: libFuzzer keeps the input, fuzz_replay has named it.
inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace regroup::fuzz
