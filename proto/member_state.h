// The state word and the seals of a member as plain data. shmem/state_word.h and
// shmem/member_slot.h have their atomic forms in an arena.
#pragma once

#include <cstdint>

#include "proto/world.h"

namespace regroup::proto {

// Where a member stands in the transaction of a position.
enum class Phase : std::uint8_t {
  kNone = 0,       // the member is new and has no state
  kOpen = 1,       // the member computes the position and may commit it
  kCommitted = 2,  // the member has committed the position
  kClosed = 3,     // revoked while open: the next World says whether the position was committed
};

// {phase, revoked, generation, position} in 64 bits.
struct StateWord {
  Phase phase = Phase::kNone;
  // With kCommitted: the generation is over, so the next transaction needs a new World.
  bool revoked = false;
  Generation generation = 0;
  Position position;

  // Layout: phase 2 bits | revoked 1 | generation 21 | position 40.
  [[nodiscard]] constexpr std::uint64_t pack() const {
    return static_cast<std::uint64_t>(phase) << 62 | static_cast<std::uint64_t>(revoked) << 61 |
           static_cast<std::uint64_t>(generation) << 40 | position.value;
  }
  [[nodiscard]] static constexpr StateWord unpack(std::uint64_t bits) {
    return {static_cast<Phase>(bits >> 62), (bits >> 61 & 1) != 0,
            static_cast<Generation>(bits >> 40 & kMaxGeneration),
            Position{bits & ((1ULL << 40) - 1)}};
  }
  bool operator==(const StateWord&) const = default;
};

// The last position that `word` proves to be committed. A word that is open or closed at p proves
// every position before p, unless p is the first step of a joining member (from_step == p.step()),
// which has not seen the sections before it.
[[nodiscard]] constexpr Position committed_up_to(StateWord word, Step from_step) {
  if (word.phase == Phase::kNone) return {};
  if (word.phase == Phase::kCommitted) return word.position;
  if (word.position.section() == 0 && word.position.step() == from_step) return {};
  return word.position.value == 0 ? Position{} : word.position.before();
}

inline constexpr std::uint32_t kMaxBuffers = 32;  // >= canonical_buffers(kMaxShards)

// Seal k of a member: its buffer k holds the complete sum of the leaves `leaves` of step `step`.
// Packed: step 32 bits | begin 16 | end 16; 0 is "no seal".
struct Seal {
  Step step = 0;
  Interval leaves;

  [[nodiscard]] constexpr std::uint64_t pack() const {
    return step << 32 | static_cast<std::uint64_t>(leaves.begin) << 16 | leaves.end;
  }
  [[nodiscard]] static constexpr Seal unpack(std::uint64_t bits) {
    return {bits >> 32,
            {static_cast<std::uint32_t>(bits >> 16 & 0xffff),
             static_cast<std::uint32_t>(bits & 0xffff)}};
  }
  bool operator==(const Seal&) const = default;
};

}  // namespace regroup::proto
