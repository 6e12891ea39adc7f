// Membership as plain data: positions, intervals of leaves, members, and the World of a generation.
// docs/design/architecture.md section 1 defines the terms.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/plane.h"
#include "regroup/types.h"

namespace regroup::proto {

using Incarnation = std::uint32_t;  // of the coordinator
// A node is a host of an elastic job: one life of an agent on it. A host that was lost comes back
// as another node. What belongs to the canonical tree is a tree node.
using NodeId = std::uint32_t;
using SlotIndex = std::uint16_t;  // of a member in the arena of its node

inline constexpr std::uint32_t kMaxGeneration = (1U << 21) - 1;
inline constexpr Step kMaxStep = (1ULL << 32) - 1;
inline constexpr std::uint32_t kMaxShards = 16384;
inline constexpr std::uint32_t kMaxMembers = 16384;   // in a World
inline constexpr std::uint32_t kMaxSlots = 128;       // in an arena: the limit of futex_waitv
inline constexpr std::uint32_t kMaxKeptResults = 64;  // results of past steps in an arena

// A point in the program that all members share: transaction 0 of step s is the training step
// itself, transactions 1..255 are the collective sections (and finish()) that follow it. Ordered;
// 40 bits.
struct Position {
  std::uint64_t value = 0;

  [[nodiscard]] static constexpr Position of(Step step, unsigned section = 0) {
    return {step << 8 | section};
  }
  [[nodiscard]] constexpr Step step() const { return value >> 8; }
  [[nodiscard]] constexpr unsigned section() const { return static_cast<unsigned>(value & 0xff); }
  // The last position that can precede this one: of (s, 0) it is (s - 1, 255), whichever sections
  // have run.
  [[nodiscard]] constexpr Position before() const { return {value - 1}; }
  auto operator<=>(const Position&) const = default;
};

// Leaves begin..end-1 of the V logical shards.
struct Interval {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  [[nodiscard]] constexpr std::uint32_t size() const { return end - begin; }
  [[nodiscard]] constexpr bool contains(std::uint32_t leaf) const {
    return begin <= leaf && leaf < end;
  }
  auto operator<=>(const Interval&) const = default;
};

// A member slot of some node's arena.
struct SlotId {
  NodeId node = 0;
  SlotIndex slot = 0;
  auto operator<=>(const SlotId&) const = default;
};

struct WorldMember {
  MemberId id = 0;
  SlotId slot_id;
  bool needs_state = false;  // copies the state of `resume` from the donors before it votes
  Step from_step = 0;    // first step in which it takes part; it skips sections of earlier steps
  bool replays = false;  // a learner: applies the missing results up to `resume` before it votes
  auto operator<=>(const WorldMember&) const = default;
};

// One generation. Immutable once announced; a rank exists only within it.
struct World {
  Incarnation incarnation = 0;
  Generation generation = 0;
  Position resume;                   // everything up to here is committed
  std::uint32_t shards = 1;          // V
  std::vector<WorldMember> members;  // in rank order
  // V entries: the slot that holds or computes each leaf of step resume.step() + 1.
  std::vector<SlotId> plan;
  std::string why;  // sentence for users: why this generation began
  // By which its members sum gradients; empty: formed by a version without planes.
  std::optional<Plane> plane = {};
  std::string plane_why = {};  // sentence for users: which plane, and why not a faster one

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(members.size()); }
  // Rank of the member at `slot_id`, or of the member `id`; -1 if it is not in this world.
  [[nodiscard]] int rank_of(SlotId slot_id) const;
  [[nodiscard]] int rank_of(MemberId id) const;
  bool operator==(const World&) const = default;
};

// The leaves of rank `rank` in a step without failures: a contiguous, balanced share of `shards`
// leaves over `size` members.
[[nodiscard]] constexpr Interval share_of_rank(std::uint32_t shards, std::uint32_t size,
                                               std::uint32_t rank) {
  auto edge = [&](std::uint64_t r) { return static_cast<std::uint32_t>(r * shards / size); };
  return {edge(rank), edge(rank + 1ULL)};
}

// The slot that holds or computes each leaf of `step` in this World: the plan for resume.step() +
// 1, share_of_rank() after it.
[[nodiscard]] std::vector<SlotId> owners_of(const World& world, Step step);

}  // namespace regroup::proto
