// Where the members' memory lies, as they exchange it, and the state of copies by CMA (single_copy.cc).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "collective/shm/cma.h"
#include "collective/shm/sync_points.h"

namespace regroup::collective {

inline constexpr std::uint64_t kNotInArena = ~0ULL;  // an offset of memory outside the arena

struct Offsets {
  std::uint64_t in;
  std::uint64_t out;
  std::int64_t numa_node;  // -1: several
};
// The payload of a member whose memory lies outside the arena.
[[nodiscard]] inline Input not_in_arena() {
  static constexpr Offsets kAtAll{kNotInArena, kNotInArena, -1};
  return std::as_bytes(std::span(&kAtAll, 1));
}

struct Announced {
  Offsets offsets;
  RemoteBuffer memory;
};
static_assert(sizeof(Announced) <= SyncPoints::kPayload);

// Equal in all members, except for what they expose.
struct SingleCopyState {
  bool possible = true;                // until a member could not read
  std::array<std::uint8_t, 16> skips;  // by kind: next operations for which CMA is not tried
  std::uint64_t done = 0;              // operations completed by CMA
  // State of the current operation.
  Announced announced;
  std::vector<RemoteBuffer> memory;  // by rank
  std::uint64_t succeeded;           // 1: this rank read all that it needed

  SingleCopyState() : skips{}, announced{}, succeeded(0) {}
};

// Whether CMA supports operations of this kind: each rank receives copies only.
[[nodiscard]] bool supports_single_copy(Kind kind);
// Whether CMA is faster than the bounce buffers, for `ranks` members and blocks of `block` bytes.
[[nodiscard]] bool single_copy_pays(Kind kind, std::size_t block, std::size_t ranks);

}  // namespace regroup::collective
