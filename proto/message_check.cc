// Implements docs/reference/formats/wire.md, section "Checks of contents".
#include "proto/message_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "proto/transfer_step.h"

namespace regroup::proto {
namespace {

base::Status malformed(const std::string& what, const std::string& why) {
  return base::data_loss(fmt::format("malformed {}: {}", what, why));
}

bool exists(const SlotId& slot_id) { return slot_id.slot < kMaxSlots; }

// Sorted, since every agent checks every World.
template <class T>
std::optional<T> twice(std::vector<T>& all) {
  std::sort(all.begin(), all.end());
  const auto found = std::adjacent_find(all.begin(), all.end());
  return found == all.end() ? std::nullopt : std::optional(*found);
}

std::string wrong_members(const World& w) {
  if (w.members.empty()) return "it has no members";
  std::vector<MemberId> ids;
  std::vector<SlotId> slot_ids;
  for (const WorldMember& m : w.members) {
    if (!exists(m.slot_id)) return fmt::format("member {} is at slot {}", m.id, m.slot_id.slot);
    if (m.from_step > kMaxStep)
      return fmt::format("member {} begins with step {}", m.id, m.from_step);
    ids.push_back(m.id);
    slot_ids.push_back(m.slot_id);
  }
  if (const auto id = twice(ids)) return fmt::format("member {} is in it twice", *id);
  if (const auto slot_id = twice(slot_ids))
    return fmt::format("two members are at slot {}", slot_id->slot);
  const bool known =
      std::any_of(w.members.begin(), w.members.end(), [](auto& m) { return !m.needs_state; });
  return known ? "" : "none of its members has the state";
}

std::string wrong(const World& w) {
  if (w.generation < 1 || w.generation > kMaxGeneration) return "no such generation exists";
  if (w.shards < 1 || w.shards > kMaxShards) return fmt::format("it has {} shards", w.shards);
  if (w.plane && static_cast<std::size_t>(*w.plane) >= kPlanes)
    return fmt::format("no plane {} exists", static_cast<int>(*w.plane));
  if (w.resume.step() > kMaxStep) return fmt::format("it resumes after step {}", w.resume.step());
  if (w.plan.size() != w.shards) {
    return fmt::format("its plan is of {} leaves, it has {} shards", w.plan.size(), w.shards);
  }
  const auto nowhere = std::find_if_not(w.plan.begin(), w.plan.end(), exists);
  if (nowhere != w.plan.end()) return fmt::format("its plan names slot {}", nowhere->slot);
  return wrong_members(w);
}

std::string wrong(const SlotReport& report) {
  if (report.slot >= kMaxSlots && report.slot != kNoSlot)
    return fmt::format("slot {} is out of range", report.slot);
  if (report.seals.size() > kMaxBuffers)
    return fmt::format("slot {} has {} seals", report.slot, report.seals.size());
  for (const Seal& seal : report.seals) {
    if (makes_sense(seal)) continue;
    return fmt::format("slot {} has a seal of leaves {} to {} of step {}", report.slot,
                       seal.leaves.begin, seal.leaves.end, seal.step);
  }
  return "";
}

base::Status check_slots(const std::string& what, const std::vector<SlotReport>& slots) {
  for (const SlotReport& report : slots) {
    if (const std::string why = wrong(report); !why.empty()) return malformed(what, why);
  }
  return {};
}

base::Status check_generation(const std::string& what, Generation generation) {
  if (generation <= kMaxGeneration) return {};
  return malformed(what, fmt::format("no generation {} exists", generation));
}

base::Status check_transfer(const std::string& what, TransferId transfer, Step step) {
  if (transfer <= kMaxTransfer && step <= kMaxStep) return {};
  return malformed(what, fmt::format("transfer {} after step {}", transfer, step));
}

base::Status check_one(const Welcome& m) {
  if (m.slot < kMaxSlots && m.shards >= 1 && m.shards <= kMaxShards) return {};
  return malformed("Welcome", fmt::format("slot {}, {} shards", m.slot, m.shards));
}
// The parts fit the memory, also for a sender that lies: the sum does not overflow.
base::Status check_one(const DeviceLine& m) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 52;
  if (m.slot < kMaxSlots && m.leaf_buffers <= kMaxLeafBuffers && m.bytes < kMost &&
      m.leaf_bytes < kMost / (m.leaf_buffers + 1) && m.slice_bytes < kMost && m.needed() <= m.bytes)
    return {};
  return malformed("DeviceLine",
                   fmt::format("slot {}, {} leaf buffers of {} bytes and a slice of {} "
                               "in {} bytes",
                               m.slot, m.leaf_buffers, m.leaf_bytes, m.slice_bytes, m.bytes));
}
base::Status check_one(const MemberReady& m) {
  if (m.slot < kMaxSlots) return {};
  return malformed("MemberReady", fmt::format("member {} at slot {}", m.join.member, m.slot));
}
base::Status check_one(const Start& m) {
  if (m.rank < m.world_size) return {};
  return malformed("Start", fmt::format("rank {} of {}", m.rank, m.world_size));
}
base::Status check_one(const MemberLost& m) {
  if (m.exit_code >= 0 && m.exit_code <= 255 && m.signal >= 0 && m.signal < 128) return {};
  return malformed("MemberLost", fmt::format("member {} with status {}, signal {}", m.member,
                                             m.exit_code, m.signal));
}
base::Status check_one(const Report& m) {
  REGROUP_RETURN_IF_ERROR(check_generation("Report", m.generation));
  if (std::ranges::any_of(m.slots, [](const SlotReport& report) { return report.slot == kNoSlot; }))
    return malformed("Report", "a member that has not joined has a slot");
  return check_slots("Report", m.slots);
}
base::Status check_one(const HelloReply& m) {
  REGROUP_RETURN_IF_ERROR(check_generation("HelloReply", std::max(m.world, m.revoked_up_to)));
  return check_slots("HelloReply", m.slots);
}
base::Status check_one(const PeerAddresses& m) {
  return check_generation("PeerAddresses", m.generation);
}
base::Status check_one(const Revoke& m) { return check_generation("Revoke", m.generation); }
base::Status check_one(const Announce& m) { return check(*m.world); }
base::Status check_one(const StartSource& m) {
  return check_transfer("StartSource", m.transfer, m.step);
}
base::Status check_one(const SourceStatus& m) {
  return check_transfer("SourceStatus", m.transfer, m.step);
}
base::Status check_one(const StartTarget& m) {
  return check_transfer("StartTarget", m.transfer, m.step);
}
base::Status check_one(const TargetStatus& m) {
  return check_transfer("TargetStatus", m.transfer, m.step);
}
template <class T>
base::Status check_one(const T&) {
  return {};
}

}  // namespace

base::Status check(const World& world) {
  const std::string why = wrong(world);
  return why.empty() ? base::Status() : malformed(fmt::format("World {}", world.generation), why);
}

bool makes_sense(const Seal& seal) {
  return seal.step <= kMaxStep && seal.leaves.begin < seal.leaves.end &&
         seal.leaves.end <= kMaxShards;
}

base::Status check(const Body& body) {
  return std::visit([](const auto& it) { return check_one(it); }, body);
}

}  // namespace regroup::proto
