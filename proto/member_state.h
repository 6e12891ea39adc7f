// The state word and the seals of a member as plain data. What changes them in an arena is in
// shmem/state_word.h and shmem/member_slot.h.
#pragma once

#include <cstdint>

#include "proto/world.h"

namespace regroup::proto {

// Where a member stands in the transaction of a position.
enum class Phase : std::uint8_t {
  kNone = 0,       // a new owner of the slot: it has no state
  kOpen = 1,       // it computes the position and may commit it
  kCommitted = 2,  // it has committed it
  kClosed = 3,     // revoked while open, in doubt: the next World says whether it was committed
};

// {phase, revoked, generation, position} in 64 bits.
struct StateWord {
  Phase phase = Phase::kNone;
  // Committed, but its generation is over: the next transaction needs a new World.
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

// The last position that a member with this word proves to be committed. An open or closed word at
// p proves everything before p, except that a newcomer (from_step == p.step()) opens its first step
// without having seen the sections before.
[[nodiscard]] constexpr Position committed_up_to(StateWord word, Step from_step) {
  if (word.phase == Phase::kNone) return {};
  if (word.phase == Phase::kCommitted) return word.position;
  if (word.position.section() == 0 && word.position.step() == from_step) return {};
  return word.position.value == 0 ? Position{} : word.position.before();
}

inline constexpr std::uint32_t kMaxBuffers = 32;  // >= canonical_buffers(kMaxShards)

// "This canonical partial sum of this step is complete in buffer k": step 32 bits | begin 16 | end
// 16; 0 is "no seal".
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
