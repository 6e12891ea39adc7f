// Assigns the slots of the arena to members, and reports what is in them. A dead member's slot is
// kept until a World without that member is announced and the step that still needs its partial
// sums is committed. docs/design/architecture.md section 3.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/memory_limit.h"
#include "base/printable.h"
#include "membership/agent/agent_core.h"
#include "membership/declaration.h"
#include "membership/membership.h"
#include "proto/canonical.h"
#include "proto/message_check.h"

namespace regroup::membership {
namespace {

// The ring gets one part in this many of the free memory, since members have not allocated theirs
// yet.
constexpr std::uint64_t kShareForResults = 8;

shmem::ArenaSpec with_kept_results(shmem::ArenaSpec spec, std::uint64_t state,
                                   const AgentOptions& options) {
  if (options.kept_results == 0 || state < options.learn_above) return spec;
  const auto limit = base::memory_limit();
  if (!limit.ok()) return spec;
  const std::uint64_t left =
      limit->available - std::min(limit->available, shmem::arena_bytes(spec));
  const std::uint64_t room =
      left / kShareForResults / std::max<std::uint64_t>(1, spec.result_bytes());
  spec.kept_results =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(options.kept_results, room));
  return spec;
}

// The state, followed by the JSON description of its tensors that regroup::elastic writes.
constexpr std::uint64_t kRoomForNames = 8 << 20;
std::uint64_t save_bytes(std::uint64_t state) { return state + state / 16 + kRoomForNames; }

}  // namespace

// Before World 1 the job can be relaunched, so the declaration of a launch whose members are all
// dead is dropped.
void AgentCore::forget_dead_launch() {
  const bool over = world_->generation == 0 &&
                    std::all_of(members_.begin(), members_.end(),
                                [](const auto& m) { return !m.second.slot || m.second.reaped; });
  if (!over) return;
  for (auto& [id, member] : members_) member.slot.reset();
  first_.reset();
}

void AgentCore::on_join(const proto::Join& join) {
  if (first_) forget_dead_launch();
  std::string warning;
  const base::Status resumed =
      check_resumed(join, options_.resumed_fingerprint, options_.any_fingerprint, &warning);
  if (!resumed.ok()) return refuse(join.member, resumed.message());
  if (!first_) {
    const shmem::ArenaSpec spec{
        .slots = options_.slots,
        .shards = options_.shards,
        .buffers_per_slot = proto::canonical_buffers(options_.shards),
        .element_bytes = join.element_bytes,
        .elements = join.elements,
        .snapshot_bytes = join.state_bytes,
        .node = options_.node,
        .kept_results = 0,
        .save_bytes = options_.checkpoints ? save_bytes(join.state_bytes) : 0};
    if (options_.checkpoint_memory > 0 && spec.save_bytes > options_.checkpoint_memory) {
      return refuse(join.member,
                    fmt::format("--checkpoint-memory {}: a snapshot of this state takes {} bytes",
                                options_.checkpoint_memory, spec.save_bytes));
    }
    auto arena = shmem::Arena::create(with_kept_results(spec, join.state_bytes, options_));
    if (arena.code() == base::Code::kResourceExhausted) arena = shmem::Arena::create(spec);
    if (!arena.ok()) return refuse(join.member, arena.status().message());
    arena_ = std::move(*arena);
    first_ = join;
  } else {
    const base::Status status =
        check_declaration(join, *first_, options_.any_fingerprint, &warning);
    if (!status.ok()) return refuse(join.member, status.message(), refusal_kind(join, *first_));
  }
  if (!warning.empty()) emit(Warn{warning});
  members_.at(join.member).join = join;
  give_line(join.member);
}

// Prefers a free slot; else, while a regroup is in progress, one whose sums the next plan can then
// not use; else the member waits if the slot of a dead member will become free, or is refused.
void AgentCore::give_line(proto::MemberId id) {
  std::optional<proto::SlotIndex> slots[4];
  for (proto::SlotIndex slot = 0; slot < arena_.spec().slots; ++slot) {
    auto& first = slots[static_cast<std::size_t>(use_of(slot))];
    if (!first) first = slot;
  }
  const auto& free = slots[static_cast<std::size_t>(Use::kFree)];
  const auto& voidable = slots[static_cast<std::size_t>(Use::kVoidable)];
  if (!free && !voidable) {
    if (slots[static_cast<std::size_t>(Use::kNeeded)]) return waiting_.push_back(id);
    return refuse(id, fmt::format("member {} is refused: all {} of node {} are in use", id,
                                  base::counted(arena_.spec().slots, "slot"), options_.node));
  }
  const proto::SlotIndex slot = free ? *free : *voidable;
  if (source_.active()) source_.read_state_words(arena_);
  arena_.assign_slot(slot, id);
  // assign_slot() knows only the newest World here, but a revoke may concern a generation that
  // never reached this node.
  arena_.member_slot(slot).revoked_up_to.store(std::max(revoked_, world_->generation),
                                               std::memory_order_seq_cst);
  members_.at(id).slot = slot;
  emit(ToMember{id, proto::Welcome{slot, options_.shards, options_.seed}, true});
  if (!free) emit(ToCoordinator{proto::Report{revoked_, report()}});
}

void AgentCore::refuse(proto::MemberId id, const std::string& reason, const char* kind) {
  if (const auto found = members_.find(id); found != members_.end() && !found->second.slot)
    found->second.loss.failure = {id, kind, "", reason};
  emit(ToMember{id, proto::Refused{reason}});
  emit(CloseMember{id});
}

void AgentCore::retry_joins() {
  for (proto::MemberId id : std::exchange(waiting_, {})) {
    if (!members_.at(id).reaped) give_line(id);
  }
}

AgentCore::Use AgentCore::use_of(proto::SlotIndex slot) const {
  const shmem::MemberSlot& line = arena_.member_slot(slot);
  const std::uint32_t occupied = line.occupied.load(std::memory_order_acquire);
  if (occupied == 0) return Use::kFree;
  const proto::MemberId owner = occupied - 1;
  const auto found = members_.find(owner);
  if (found == members_.end() || !found->second.dead) return Use::kTaken;
  if (!found->second.reaped || world_->rank_of(owner) >= 0) return Use::kNeeded;
  const proto::Step committed = committed_step();
  const proto::SlotId slot_id{options_.node, slot};
  const bool planned =
      committed <= world_->resume.step() &&
      std::find(world_->plan.begin(), world_->plan.end(), slot_id) != world_->plan.end();
  if (!awaits_world()) return planned ? Use::kNeeded : Use::kFree;
  const bool sealed =
      std::any_of(std::begin(line.seals), std::end(line.seals), [&](const auto& word) {
        return proto::Seal::unpack(word.load(std::memory_order_acquire)).step > committed;
      });
  return planned || sealed ? Use::kVoidable : Use::kFree;
}

proto::Step AgentCore::committed_step() const {
  return resume_of(*world_, {{options_.node, report()}}).step();
}

// True if every leaf that the plan assigns to a slot outside the World is sealed in that slot.
bool AgentCore::plan_holds(const proto::World& world) const {
  for (std::uint32_t leaf = 0; leaf < world.plan.size(); ++leaf) {
    const proto::SlotId slot_id = world.plan[leaf];
    if (slot_id.node != options_.node || world.rank_of(slot_id) >= 0) continue;
    if (slot_id.slot >= arena_.spec().slots) return false;
    const auto& seals = arena_.member_slot(slot_id.slot).seals;
    const bool sealed = std::any_of(std::begin(seals), std::end(seals), [&](const auto& word) {
      const proto::Seal seal = proto::Seal::unpack(word.load(std::memory_order_acquire));
      return seal.step == world.resume.step() + 1 && seal.leaves.contains(leaf);
    });
    if (!sealed) return false;
  }
  return true;
}

proto::SlotReport AgentCore::report_of(proto::SlotIndex slot) const {
  const shmem::MemberSlot& line = arena_.member_slot(slot);
  proto::SlotReport out{.member = line.occupied.load(std::memory_order_acquire) - 1,
                        .slot = slot,
                        .alive = line.dead.load(std::memory_order_acquire) == 0,
                        .finished = line.finished.load(std::memory_order_acquire) != 0,
                        .state = shmem::load_state<shmem::RealPolicy>(line.state),
                        .step = line.step.load(std::memory_order_relaxed),
                        .loss = line.loss.load(std::memory_order_relaxed),
                        .proved = line.proved.load(std::memory_order_acquire) != 0};
  out.caught_up_to = target_.may_have(out.member);
  for (const auto& word : line.seals) {
    const proto::Seal seal = proto::Seal::unpack(word.load(std::memory_order_acquire));
    if (proto::makes_sense(seal)) out.seals.push_back(seal);
  }
  return out;
}

std::vector<proto::SlotReport> AgentCore::report() const {
  std::vector<proto::SlotReport> lines;
  for (proto::SlotIndex slot = 0; arena_.mapped() && slot < arena_.spec().slots; ++slot) {
    if (arena_.member_slot(slot).occupied.load(std::memory_order_acquire) != 0)
      lines.push_back(report_of(slot));
  }
  return lines;
}

}  // namespace regroup::membership
