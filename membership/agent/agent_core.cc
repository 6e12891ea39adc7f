// The agent's reactions to the coordinator and to members. docs/design/architecture.md sections 3
// and 4. slot_use.h decides which slots may be reassigned.
#include "membership/agent/agent_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/printable.h"
#include "membership/membership.h"

namespace regroup::membership {
namespace {

std::string abbreviation(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? "" : fmt::format(" (SIG{})", name);
}

}  // namespace

AgentCore::AgentCore(AgentOptions options)
    : options_(std::move(options)), transfer_(options_.node, options_.endpoints) {}

void AgentCore::emit_all(AgentEffects effects) {
  for (AgentEffect& effect : effects) effects_.push_back(std::move(effect));
}

// Ends a call. It may have removed the last learner of a fetch.
AgentEffects AgentCore::take_effects() {
  if (const auto stop = transfer_.stop_idle_fetch()) emit(*stop);
  return std::exchange(effects_, {});
}

AgentEffects AgentCore::handle(AgentSender source, const proto::Message& message) {
  if (source.member) {
    on_member(*source.member, message.body);
  } else if (message.incarnation < incarnation_) {
    emit(
        Warn{fmt::format("refused a message of coordinator incarnation {}: incarnation {} is known",
                         message.incarnation, incarnation_)});
  } else {
    incarnation_ = message.incarnation;
    on_coordinator(message.body);
  }
  return take_effects();
}

void AgentCore::on_coordinator(const proto::Body& body) {
  if (const auto* start = std::get_if<proto::Start>(&body)) {
    members_.add(start->member);
    emit(StartMember{*start});
  } else if (std::holds_alternative<proto::Hello>(body)) {
    on_hello();
  } else if (std::holds_alternative<proto::Query>(body)) {
    retry_joins();
    emit(ToCoordinator{proto::Report{0, report()}});
  } else if (const auto* revoke = std::get_if<proto::Revoke>(&body)) {
    on_revoke(revoke->generation);
  } else if (const auto* announce = std::get_if<proto::Announce>(&body)) {
    on_announce(*announce);
  } else if (const auto* addresses = std::get_if<proto::PeerAddresses>(&body)) {
    on_peer_addresses(*addresses);
  } else if (const auto* notice = std::get_if<proto::Notice>(&body)) {
    on_notice(notice->member);
  } else if (const auto* kill = std::get_if<proto::Kill>(&body)) {
    on_kill(*kill);
  } else if (const auto* start_source = std::get_if<proto::StartSource>(&body)) {
    emit_all(transfer_.start_source(*start_source, arena(), *world_, awaits_world()));
  } else if (const auto* start_target = std::get_if<proto::StartTarget>(&body)) {
    on_start_target(*start_target);
  } else if (std::holds_alternative<proto::EndTransfer>(body)) {
    emit_all(transfer_.end(arena()));
  } else if (const auto* done = std::get_if<proto::JobDone>(&body)) {
    if (done->exit_code == kEndedOnNotice)
      return;  // the members were excluded and end by themselves
    for (const auto& [id, member] : members_.all()) {
      if (!member.is_reaped()) emit(KillMember{id});
    }
  }
}

void AgentCore::on_member(proto::MemberId id, const proto::Body& body) {
  LocalMember* const member = members_.find(id);
  if (const auto* join = std::get_if<proto::Join>(&body)) {
    if (member == nullptr)
      return refuse(id, fmt::format("member {} was not started by this agent", id));
    if (join->member != id || member->slot || member->awaits_line || member->is_reaped() ||
        std::find(waiting_.begin(), waiting_.end(), id) != waiting_.end()) {
      return refuse(id, fmt::format("member {} has joined before", id));
    }
    on_join(*join);
  } else if (const auto* failure = std::get_if<proto::Failure>(&body)) {
    on_failure(id, *failure);
  } else if (member == nullptr || !member->slot || member->is_dead()) {
    return;  // the member was refused, or is dead
  } else if (const auto* ready = std::get_if<proto::Ready>(&body)) {
    on_ready(*ready, id, member);
  } else if (const auto* addresses = std::get_if<proto::PeerAddresses>(&body)) {
    if (peer_addresses_.add(id, *addresses)) send_peer_addresses();
  } else if (const auto* suspect = std::get_if<proto::PeerSuspect>(&body)) {
    emit(ToCoordinator{*suspect});
  } else if (const auto* carrier = std::get_if<proto::CarrierLost>(&body)) {
    on_carrier_lost(*carrier);
  } else if (const auto* diverged = std::get_if<proto::Diverged>(&body)) {
    emit(ToCoordinator{proto::Diverged{id, diverged->why}});
  } else if (std::holds_alternative<proto::Drained>(body)) {
    member->drained = true;
    emit(ToCoordinator{proto::MemberDrained{id}});
  }
}

// All members of the host may say so; the first knows why.
void AgentCore::on_carrier_lost(const proto::CarrierLost& lost) {
  if (lost.generation != world_->generation || awaits_world() ||
      carrier_lost_.generation == lost.generation)
    return;
  carrier_lost_ = lost;
  emit(ToCoordinator{lost});
}

// Before World 1 the job can be relaunched, so the agent drops the declaration of a launch once all
// its members are dead.
void AgentCore::on_join(const proto::Join& join) {
  if (arena_.declaration() && world_->generation == 0 && members_.none_holds_a_slot()) {
    members_.drop_slots();
    lines_.drop_slots();
    arena_.forget_declaration();
  }
  const auto answer = arena_.admit(join, options_);
  if (const auto* refused = std::get_if<DeclaredArena::Refused>(&answer))
    return refuse(join.member, refused->reason, refused->kind);
  const std::string& warning = std::get<DeclaredArena::Admitted>(answer).warning;
  if (!warning.empty()) emit(Warn{warning});
  members_.find(join.member)->join = join;
  if (options_.leaf_buffers == 0 || join.gpu.empty()) return assign_slot(join.member);
  request_line(join.member, join);
}

// The line comes before the slot, so that a member that gets none can still be refused, and no slot
// is taken from a dead member for it.
void AgentCore::request_line(proto::MemberId id, const proto::Join& join) {
  const proto::DeviceLine wanted = line_for(join, options_.leaf_buffers);
  const auto is_free = [this](proto::MemberId owner) { return line_is_free(owner); };
  if (lines_.reuse(id, wanted, is_free)) return assign_slot(id);
  for (const proto::DeviceLineId line : lines_.drop_free(wanted, is_free))
    emit(DropDeviceLine{line});
  members_.find(id)->awaits_line = true;
  emit(CreateDeviceLine{lines_.add(id, wanted)});
}

// As a slot: its owner is reaped, so nothing on the GPU is the owner's any more, and no plan needs
// its sums.
bool AgentCore::line_is_free(proto::MemberId owner) const {
  const LocalMember* member = members_.find(owner);
  if (member == nullptr || !member->is_reaped()) return false;
  if (!member->slot || !arena().mapped() || *member->slot >= arena().spec().slots) return true;
  const shmem::MemberSlot& words = arena().member_slot(*member->slot);
  if (words.occupied.load(std::memory_order_acquire) != owner + 1) return true;
  return use_of({arena(), members_, *world_, awaits_world(), committed()}, *member->slot) ==
         SlotUse::kFree;
}

bool AgentCore::reads_gpu_sums(const proto::World* world) const {
  return std::ranges::any_of(members_.all(), [&](const auto& entry) {
    const auto& [id, member] = entry;
    return member.is_ready() && lines_.of(id) != nullptr &&
           (world == nullptr || world->rank_of(id) >= 0);
  });
}

AgentEffects AgentCore::on_device_line(proto::DeviceLineId line, std::uint64_t bytes) {
  const auto owner = lines_.created(line, bytes);
  if (!owner) {
    emit(DropDeviceLine{line});
    return take_effects();
  }
  LocalMember* const member = members_.find(*owner);
  member->awaits_line = false;
  if (!member->is_dead()) assign_slot(*owner);
  return take_effects();
}

// Without a line a member trains over the host's memory.
AgentEffects AgentCore::on_no_device_line(proto::DeviceLineId line, const std::string& why,
                                          bool full, std::uint32_t device) {
  const auto lost = lines_.failed(line);
  if (!lost) return {};
  LocalMember* const member = members_.find(lost->owner);
  member->awaits_line = false;
  if (member->is_dead()) return {};
  if (full) {
    refuse(lost->owner, not_enough(lost->line, device, member->join.gpu_free));
    return take_effects();
  }
  member->no_device_line = why;
  if (!std::exchange(warned_of_no_line_, true))
    emit(
        Warn{fmt::format("member {} has no device memory of the job, its gradients go through the "
                         "host: {}",
                         lost->owner, why)});
  assign_slot(lost->owner);
  return take_effects();
}

void AgentCore::on_ready(const proto::Ready& ready, proto::MemberId id, LocalMember* member) {
  if (member->is_ready()) return;
  member->life = LocalMember::Life::kReady;
  member->planes = ready.planes;
  member->health = ready.health;
  emit(WatchOwner{id, *member->slot});
  emit(ToCoordinator{
      proto::MemberReady{*member->slot, member->join, member->planes, member->health}});
}

// The member is about to end. The agent forwards a failure that ends the job at once, before the
// process has ended.
void AgentCore::on_failure(proto::MemberId id, const proto::Failure& failure) {
  LocalMember* const member = members_.find(id);
  if (member == nullptr || member->is_reaped()) return;
  proto::Failure& known = member->loss.failure;
  if (known.known()) return;  // later failures are consequences of the first
  known = failure;
  if (known.final) emit(ToCoordinator{known});
}

// A restarted coordinator asks for the slots: the agent also repeats every fact that it may have
// missed. Drained members come first, so that the coordinator does not take them for starting ones.
void AgentCore::on_hello() {
  emit_all(transfer_.end(arena()));
  for (const auto& [id, member] : members_.all()) {
    if (member.is_ready() && member.drained) emit(ToCoordinator{proto::MemberDrained{id}});
  }
  proto::HelloReply reply{world_->generation, revoked_, report()};
  for (const auto& [id, member] : members_.all()) {
    if (member.is_ready() && member.planes) reply.planes.push_back({id, *member.planes});
    if (!member.slot)
      reply.slots.push_back({.member = id, .slot = proto::kNoSlot, .alive = !member.is_reaped()});
  }
  reply.declared = arena_.declaration();
  emit(ToCoordinator{std::move(reply)});
  send_peer_addresses();
  if (carrier_lost_.generation == world_->generation && world_->generation > 0)
    emit(ToCoordinator{carrier_lost_});
  for (const auto& [id, member] : members_.all()) {
    if (member.is_ready() && world_->rank_of(id) < 0)
      emit(ToCoordinator{
          proto::MemberReady{*member.slot, member.join, member.planes, member.health}});
    if (member.is_dead()) emit(ToCoordinator{member.loss});
    if (member.loss.failure.final) emit(ToCoordinator{member.loss.failure});
  }
}

// Closes the words before it reads the Report from them, so that the Report is final.
void AgentCore::on_revoke(proto::Generation g) {
  revoked_ = std::max(revoked_, g);
  for (proto::SlotIndex slot = 0; arena().mapped() && slot < arena().spec().slots; ++slot) {
    shmem::MemberSlot& member_slot = arena().member_slot(slot);
    if (member_slot.occupied.load(std::memory_order_acquire) == 0) continue;
    shmem::revoke<shmem::RealPolicy>(member_slot.state, member_slot.revoked_up_to, revoked_);
    shmem::ring(member_slot.bell);
  }
  emit(ToCoordinator{proto::Report{revoked_, report()}});
}

void AgentCore::on_announce(const proto::Announce& announce) {
  const proto::World& world = *announce.world;
  if (world.generation <= world_->generation || world.generation <= revoked_) {
    emit(Warn{fmt::format("refused World {}: World {} is known, generation {} is revoked",
                          world.generation, world_->generation, revoked_)});
    return;
  }
  if (!arena().mapped())  // no member has joined here, so the World has none on this node
    return adopt(announce.world);
  emit_all(transfer_.on_world(arena(), world));
  // Publishes the World even if it must be revoked at once because partial sums are missing: a
  // member can only leave a generation that it sees. Fails only for a World larger than
  // world_bytes(), which no World of the job is.
  if (const base::Status status = arena_.arena().publish_world(world); !status.ok()) {
    return emit(Warn{status.to_string()});
  }
  adopt(announce.world);
  shmem::ring_all(arena());
  if (!holds_plan(arena(), world, reads_gpu_sums(&world))) {
    emit(Warn{fmt::format("World {} needs partial sums that no longer exist", world.generation)});
    on_revoke(world.generation);
  }
  retry_joins();
}

void AgentCore::adopt(std::shared_ptr<const proto::World> world) {
  world_ = std::move(world);
  peer_addresses_.begin(*world_, options_.node);
}

void AgentCore::send_peer_addresses() {
  if (auto all = peer_addresses_.complete()) emit(ToCoordinator{std::move(*all)});
}

void AgentCore::on_peer_addresses(const proto::PeerAddresses& all) {
  if (all.generation != world_->generation || !arena().mapped()) return;
  for (const proto::WorldMember& m : world_->members) {
    const LocalMember* member = members_.find(m.id);
    if (m.slot_id.node != options_.node || member == nullptr || member->is_dead()) continue;
    emit(ToMember{m.id, all});
    emit(Ring{m.slot_id.slot});
  }
}

void AgentCore::on_notice(proto::MemberId id) {
  const LocalMember* member = members_.find(id);
  if (member == nullptr || member->is_reaped()) return;
  if (!member->slot) return emit(KillMember{id});
  shmem::MemberSlot& member_slot = arena().member_slot(*member->slot);
  member_slot.leave_request.store(shmem::kAtBoundary, std::memory_order_release);
  shmem::ring(member_slot.bell);
}

// Sends the message first, so that a member that finds itself excluded also finds the reason.
void AgentCore::on_kill(const proto::Kill& kill) {
  const LocalMember* member = members_.find(kill.member);
  if (member == nullptr || member->is_reaped()) return;
  if (!kill.gently || !member->slot || member->is_dead()) return emit(KillMember{kill.member});
  emit(ToMember{kill.member, proto::Excluded{kill.reason}});
  emit(ReleaseMember{*member->slot});
}

void AgentCore::on_start_target(const proto::StartTarget& order) {
  std::vector<TransferTarget::LearnerSlot> learners;
  for (const proto::MemberId id : order.members) {
    const LocalMember* member = members_.find(id);
    if (member == nullptr || !member->slot || member->is_dead() || world_->rank_of(id) >= 0)
      continue;  // the coordinator knows of this death, or a message is on its way
    learners.push_back({id, *member->slot});
  }
  emit_all(transfer_.start_target(order, learners, arena()));
}

proto::Step AgentCore::committed() const {
  return resume_of(*world_, {{options_.node, report()}}).step();
}

void AgentCore::assign_slot(proto::MemberId id) {
  const SlotChoice choice = choose_slot({arena(), members_, *world_, awaits_world(), committed()});
  if (!choice.slot) {
    if (choice.worth_wait) return waiting_.push_back(id);
    return refuse(id, fmt::format("member {} is refused: all {} of node {} are in use", id,
                                  base::counted(arena().spec().slots, "slot"), options_.node));
  }
  transfer_.before_slot_is_reassigned(arena());
  arena_.arena().assign_slot(*choice.slot, id);
  // assign_slot() knows only the newest World here, but a revoke may concern a generation that
  // never reached this node.
  arena()
      .member_slot(*choice.slot)
      .revoked_up_to.store(std::max(revoked_, world_->generation), std::memory_order_seq_cst);
  members_.find(id)->slot = choice.slot;
  welcome(id, *choice.slot);
  if (choice.voids) emit(ToCoordinator{proto::Report{revoked_, report()}});
}

// The others get the newcomer's line now, long before the World that has the newcomer; or learn
// that the slot has no line any more.
void AgentCore::welcome(proto::MemberId id, proto::SlotIndex slot) {
  const LocalMember& member = *members_.find(id);
  const bool had_line = lines_.in_slot(slot) != nullptr;
  const proto::DeviceLine* const own = lines_.move_to(id, slot);
  const std::vector<proto::DeviceLine> lines =
      member.join.gpu.empty() ? std::vector<proto::DeviceLine>() : lines_.in_slots();
  const auto count = static_cast<std::uint32_t>(lines.size());
  emit(ToMember{id,
                proto::Welcome{slot, options_.shards, options_.seed, count, member.no_device_line},
                true});
  for (const proto::DeviceLine& line : lines) emit(ToMember{id, line});
  if (own == nullptr && !had_line) return;
  proto::DeviceLine none;
  none.slot = slot;
  for (const auto& [other, there] : members_.all()) {
    if (other != id && there.slot && !there.is_dead() && !there.join.gpu.empty())
      emit(ToMember{other, own == nullptr ? none : *own});
  }
}

void AgentCore::refuse(proto::MemberId id, const std::string& reason, const char* kind) {
  if (LocalMember* member = members_.find(id); member != nullptr && !member->slot)
    member->loss.failure = {id, kind, "", reason};
  emit(ToMember{id, proto::Refused{reason}});
  emit(CloseMember{id});
}

void AgentCore::retry_joins() {
  for (proto::MemberId id : std::exchange(waiting_, {})) {
    if (!members_.find(id)->is_reaped()) assign_slot(id);
  }
}

void AgentCore::release(proto::SlotIndex slot) {
  shmem::MemberSlot& member_slot = arena().member_slot(slot);
  member_slot.leave_request.store(shmem::kNow, std::memory_order_release);
  shmem::ring(member_slot.bell);
}

AgentEffects AgentCore::on_owner_died(proto::SlotIndex slot) {
  const std::uint32_t owner =
      arena().mapped() && slot < arena().spec().slots
          ? arena().member_slot(slot).occupied.load(std::memory_order_acquire)
          : 0;
  if (owner == 0) return {};
  LocalMember* const member = members_.find(owner - 1);
  if (member == nullptr || member->is_dead()) return {};
  member->loss.why =
      fmt::format("member {}: its session or its training thread has ended", owner - 1);
  mark_dead(owner - 1);
  emit(ToCoordinator{member->loss});
  return take_effects();
}

AgentEffects AgentCore::on_stuck(proto::MemberId id, const std::string& why) {
  LocalMember* const member = members_.find(id);
  if (member == nullptr || !member->slot || member->is_dead()) return {};
  member->loss.why = why;
  mark_dead(id);
  emit(ToCoordinator{member->loss});
  return take_effects();
}

AgentEffects AgentCore::on_link_closed(proto::MemberId id) {
  const LocalMember* member = members_.find(id);
  if (member == nullptr || !member->slot || member->is_reaped()) return {};
  const shmem::MemberSlot& member_slot = arena().member_slot(*member->slot);
  const bool done = member_slot.finished.load(std::memory_order_acquire) != 0 ||
                    member_slot.leave_request.load(std::memory_order_acquire) == shmem::kNow;
  if (!done) emit(KillMember{id});
  return take_effects();
}

// Reports the loss before a waiting member gets the slot: the coordinator must not see the slot's
// new owner first.
AgentEffects AgentCore::on_reaped(proto::MemberId id, std::int32_t pid, std::int32_t exit_code,
                                  std::int32_t signal) {
  LocalMember* const member = members_.mark_reaped(id, exit_code, signal, arena());
  if (member == nullptr) return {};
  transfer_.forget(id);
  const std::string what = signal != 0
                               ? fmt::format("killed by signal {}{}", signal, abbreviation(signal))
                               : fmt::format("exited with status {}", exit_code);
  const bool early = signal == 0 && exit_code == 0 && member->loss.joined && !member->loss.finished;
  member->loss.why =
      fmt::format("member {} (pid {}): {}{}", id, pid, what, early ? " before finish()" : "");
  emit(ToCoordinator{member->loss});
  retry_joins();
  return take_effects();
}

void AgentCore::mark_dead(proto::MemberId id) {
  if (members_.mark_dead(id, arena())) transfer_.forget(id);
}

AgentEffects AgentCore::poll_transfer(bool* more) {
  *more = false;
  // A result published after the Report could put a learner ahead of the World formed from it.
  if (awaits_world()) return {};
  emit_all(transfer_.poll(arena(), *world_, more));
  return take_effects();
}

AgentEffects AgentCore::on_fetch_failed(const std::string& why) {
  emit_all(transfer_.on_fetch_failed(arena(), why));
  return take_effects();
}

}  // namespace regroup::membership
