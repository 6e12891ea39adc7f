// What the members of a communicator tell each other of where their memory lies, and what each knows of
// copies by the kernel (one_copy.cc).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "collective/shm/arrivals.h"
#include "collective/shm/foreign.h"

namespace regroup::collective {

inline constexpr std::uint64_t kNowhere = ~0ULL;  // an offset of what does not lie in the arena

struct Offsets {
  std::uint64_t in;
  std::uint64_t out;
  std::int64_t numa_node;  // -1: several
};
// For the others, of what does not lie in the arena.
[[nodiscard]] inline Input nowhere() {
  static constexpr Offsets kAtAll{kNowhere, kNowhere, -1};
  return std::as_bytes(std::span(&kAtAll, 1));
}

struct Announced {
  Offsets offsets;
  ForeignMemory memory;
};
static_assert(sizeof(Announced) <= Arrivals::kPayload);

// The same in all members, but for what they themselves announce.
struct OneCopyState {
  bool possible = true;                // until one could not read
  std::array<std::uint8_t, 16> rests;  // by kind: so many of its operations more are not tried
  std::uint64_t done = 0;              // operations that went so
  // Of the operation under way.
  Announced announced;
  std::vector<ForeignMemory> memory;  // by rank
  std::uint64_t could;                // this rank read all that it needed

  OneCopyState() : rests{}, announced{}, could(0) {}
};

// Whether operations of this kind can go so: what each rank receives are copies.
[[nodiscard]] bool can_be_one_copy(Kind kind);
// Whether they are faster than through the stages, of `ranks` members with blocks of so many bytes.
[[nodiscard]] bool pays_by_one_copy(Kind kind, std::size_t block, std::size_t ranks);

}  // namespace regroup::collective
