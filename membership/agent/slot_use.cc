// Reads seals and state words, which members change meanwhile, so each result was true at one
// moment. It stays true as long as it matters: a dead member stores nothing, and a living member's
// slot is never reassigned.
#include "membership/agent/slot_use.h"

#include <algorithm>

#include "proto/message_check.h"

namespace regroup::membership {
namespace {

bool is_on_gpu(const shmem::MemberSlot& slot, std::size_t buffer) {
  return (slot.on_device.load(std::memory_order_acquire) >> buffer & 1) != 0;
}

proto::SlotReport report_of(const shmem::Arena& arena, proto::SlotIndex slot,
                            const NodeTransfer& transfer, bool gpu_sums) {
  const shmem::MemberSlot& member_slot = arena.member_slot(slot);
  proto::SlotReport out{.member = member_slot.occupied.load(std::memory_order_acquire) - 1,
                        .slot = slot,
                        .alive = member_slot.dead.load(std::memory_order_acquire) == 0,
                        .finished = member_slot.finished.load(std::memory_order_acquire) != 0,
                        .state = shmem::load_state<shmem::RealPolicy>(member_slot.state),
                        .step = member_slot.step.load(std::memory_order_relaxed),
                        .loss = member_slot.loss.load(std::memory_order_relaxed),
                        .proved = member_slot.proved.load(std::memory_order_acquire) != 0};
  out.caught_up_to = transfer.may_have(out.member);
  for (std::size_t buffer = 0; buffer < std::size(member_slot.seals); ++buffer) {
    const proto::Seal seal =
        proto::Seal::unpack(member_slot.seals[buffer].load(std::memory_order_acquire));
    if (!out.alive && !gpu_sums && is_on_gpu(member_slot, buffer)) continue;
    if (proto::makes_sense(seal)) out.seals.push_back(seal);
  }
  return out;
}

}  // namespace

std::vector<proto::SlotReport> report_slots(const shmem::Arena& arena, const NodeTransfer& transfer,
                                            bool gpu_sums) {
  std::vector<proto::SlotReport> reports;
  for (proto::SlotIndex slot = 0; arena.mapped() && slot < arena.spec().slots; ++slot) {
    if (arena.member_slot(slot).occupied.load(std::memory_order_acquire) != 0)
      reports.push_back(report_of(arena, slot, transfer, gpu_sums));
  }
  return reports;
}

bool holds_plan(const shmem::Arena& arena, const proto::World& world, bool gpu_sums) {
  for (std::uint32_t leaf = 0; leaf < world.plan.size(); ++leaf) {
    const proto::SlotId slot_id = world.plan[leaf];
    if (slot_id.node != arena.spec().node || world.rank_of(slot_id) >= 0) continue;
    if (slot_id.slot >= arena.spec().slots) return false;
    const shmem::MemberSlot& member_slot = arena.member_slot(slot_id.slot);
    bool sealed = false;
    for (std::size_t buffer = 0; buffer < std::size(member_slot.seals); ++buffer) {
      const proto::Seal seal =
          proto::Seal::unpack(member_slot.seals[buffer].load(std::memory_order_acquire));
      sealed |= seal.step == world.resume.step() + 1 && seal.leaves.contains(leaf) &&
                (gpu_sums || !is_on_gpu(member_slot, buffer));
    }
    if (!sealed) return false;
  }
  return true;
}

SlotUse use_of(const SlotView& view, proto::SlotIndex slot) {
  const shmem::MemberSlot& member_slot = view.arena.member_slot(slot);
  const std::uint32_t occupied = member_slot.occupied.load(std::memory_order_acquire);
  if (occupied == 0) return SlotUse::kFree;
  const proto::MemberId owner = occupied - 1;
  const LocalMember* member = view.members.find(owner);
  if (member == nullptr || !member->is_dead()) return SlotUse::kTaken;
  const proto::World& world = view.world;
  if (!member->is_reaped() || world.rank_of(owner) >= 0) return SlotUse::kNeeded;
  const proto::SlotId slot_id{view.arena.spec().node, slot};
  const bool planned = view.committed <= world.resume.step() &&
                       std::find(world.plan.begin(), world.plan.end(), slot_id) != world.plan.end();
  if (!view.awaits_world) return planned ? SlotUse::kNeeded : SlotUse::kFree;
  const bool sealed = std::any_of(
      std::begin(member_slot.seals), std::end(member_slot.seals), [&](const auto& word) {
        return proto::Seal::unpack(word.load(std::memory_order_acquire)).step > view.committed;
      });
  if (!planned && !sealed) return SlotUse::kFree;
  // A member that has not noticed the revoke may be moving such a sum to the arena, and clears its
  // bit then (Session::move_to_arena).
  const bool may_move = member_slot.on_device.load(std::memory_order_acquire) != 0 &&
                        !shmem::all_left_before(view.arena, world.generation + 1);
  return may_move ? SlotUse::kNeeded : SlotUse::kVoidable;
}

SlotChoice choose_slot(const SlotView& view) {
  std::optional<proto::SlotIndex> first[4];  // by use
  for (proto::SlotIndex slot = 0; slot < view.arena.spec().slots; ++slot) {
    auto& of_use = first[static_cast<std::size_t>(use_of(view, slot))];
    if (!of_use) of_use = slot;
  }
  const auto of = [&first](SlotUse use) { return first[static_cast<std::size_t>(use)]; };
  if (of(SlotUse::kFree)) return {.slot = of(SlotUse::kFree)};
  if (of(SlotUse::kVoidable)) return {.slot = of(SlotUse::kVoidable), .voids = true};
  return {.worth_wait = of(SlotUse::kNeeded).has_value()};
}

}  // namespace regroup::membership
