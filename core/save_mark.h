// What the arena's save area holds: a state of which step, and whose turn it is. One word; members and the
// agent change it by compare-and-swap.
#pragma once

#include <cstdint>

#include "core/world.h"

namespace regroup::core {

struct SaveMark {
  enum class Phase : std::uint8_t {
    kIdle,     // free; `step` was the last one saved
    kWriting,  // the member of rank 0 copies
    kReady,    // complete: the agent's turn, whoever dies
    kTaken,    // being written to the disk
  };
  Phase phase = Phase::kIdle;
  Step step = 0;
  bool operator==(const SaveMark&) const = default;

  [[nodiscard]] std::uint64_t pack() const { return step << 2 | static_cast<std::uint64_t>(phase); }
  [[nodiscard]] static SaveMark unpack(std::uint64_t word) {
    return {static_cast<Phase>(word & 3), word >> 2};
  }
};

// At the start of the save area. Pieces of the state follow, then the description at `offset` of the area:
// JSON as regroup-persist takes it (docs/formats/checkpoint.md), but for what only the agent knows.
struct SaveHeader {
  std::uint64_t offset;
  std::uint64_t bytes;
};

}  // namespace regroup::core
