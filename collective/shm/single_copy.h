// What the members of a communicator tell each other of where their memory lies, and what each knows of
// copies by the kernel (single_copy.cc).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "collective/shm/cma.h"
#include "collective/shm/sync_points.h"

namespace regroup::collective {

inline constexpr std::uint64_t kNotInArena = ~0ULL;  // an offset of what does not lie in the arena

struct Offsets {
  std::uint64_t in;
  std::uint64_t out;
  std::int64_t numa_node;  // -1: several
};
// For the others, of what does not lie in the arena.
[[nodiscard]] inline Input not_in_arena() {
  static constexpr Offsets kAtAll{kNotInArena, kNotInArena, -1};
  return std::as_bytes(std::span(&kAtAll, 1));
}

struct Announced {
  Offsets offsets;
  RemoteBuffer memory;
};
static_assert(sizeof(Announced) <= SyncPoints::kPayload);

// The same in all members, but for what they themselves announce.
struct SingleCopyState {
  bool possible = true;                // until one could not read
  std::array<std::uint8_t, 16> skips;  // by kind: so many of its operations more are not tried
  std::uint64_t done = 0;              // operations that went so
  // Of the operation under way.
  Announced announced;
  std::vector<RemoteBuffer> memory;  // by rank
  std::uint64_t succeeded;           // this rank read all that it needed

  SingleCopyState() : skips{}, announced{}, succeeded(0) {}
};

// Whether operations of this kind can go so: what each rank receives are copies.
[[nodiscard]] bool supports_single_copy(Kind kind);
// Whether they are faster than through the stages, of `ranks` members with blocks of so many bytes.
[[nodiscard]] bool single_copy_pays(Kind kind, std::size_t block, std::size_t ranks);

}  // namespace regroup::collective
