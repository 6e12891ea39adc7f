// Decides which slots of an arena may be reassigned: pure functions of the words in the arena and
// of the agent's knowledge. docs/design/architecture.md, section 3.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "membership/agent/local_members.h"
#include "membership/agent/node_transfer.h"
#include "proto/slot_report.h"
#include "proto/world.h"
#include "shmem/arena.h"

namespace regroup::membership {

// The state of each slot of `arena` that has an owner, for the coordinator. `arena` may be
// unmapped. `gpu_sums`: a living member can read sums of dead ones in memory of a GPU; else these
// are left out.
[[nodiscard]] std::vector<proto::SlotReport> report_slots(const shmem::Arena& arena,
                                                          const NodeTransfer& transfer,
                                                          bool gpu_sums);

// True if every leaf that the plan of `world` assigns to a slot of this node outside the World is
// sealed in that slot. `gpu_sums`: a member of the World here can read those in memory of a GPU.
[[nodiscard]] bool holds_plan(const shmem::Arena& arena, const proto::World& world, bool gpu_sums);

// The agent's knowledge when it assigns a slot.
struct SlotView {
  const shmem::Arena& arena;  // mapped
  const LocalMembers& members;
  const proto::World& world;  // the newest one announced here
  bool awaits_world = false;  // the generation of `world` is revoked here
  proto::Step committed = 0;  // newest step that a member here knows to be committed
};

// Why a slot may be reassigned, or not yet. A dead member's slot is kept until a World without that
// member is announced and the step that still needs its partial sums is committed.
enum class SlotUse : std::uint8_t {
  kFree,      // no member needs its sums
  kVoidable,  // the next plan could use its sums; reassigning the slot makes them void
  kNeeded,    // its owner is dead, but its sums are still needed; it will become free
  kTaken,     // its owner lives
};
[[nodiscard]] SlotUse use_of(const SlotView& view, proto::SlotIndex slot);

// Chooses the slot for a member that joins: a free one; else, while a regroup is in progress, a
// voidable one, which the agent must report before the coordinator makes the next plan.
struct SlotChoice {
  std::optional<proto::SlotIndex> slot;
  bool voids = false;       // `slot` was voidable
  bool worth_wait = false;  // without `slot`: a slot will become free
};
[[nodiscard]] SlotChoice choose_slot(const SlotView& view);

}  // namespace regroup::membership
