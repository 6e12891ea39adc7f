// The agent's reactions to the coordinator and to members. docs/design/architecture.md sections 3
// and 4. agent_lines.cc decides which slots may be reassigned.
#include "membership/agent/agent_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "membership/membership.h"

namespace regroup::membership {
namespace {

std::string abbreviation(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? "" : fmt::format(" (SIG{})", name);
}

}  // namespace

AgentCore::AgentCore(AgentOptions options) : options_(std::move(options)) {}

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
  return effects();
}

void AgentCore::on_coordinator(const proto::Body& body) {
  if (const auto* start = std::get_if<proto::Start>(&body)) {
    members_.try_emplace(start->member);
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
  } else if (const auto* contacts = std::get_if<proto::Contacts>(&body)) {
    on_contacts(*contacts);
  } else if (const auto* notice = std::get_if<proto::Notice>(&body)) {
    on_notice(notice->member);
  } else if (const auto* kill = std::get_if<proto::Kill>(&body)) {
    on_kill(*kill);
  } else if (const auto* start_source = std::get_if<proto::StartSource>(&body)) {
    on_start_source(*start_source);
  } else if (const auto* start_target = std::get_if<proto::StartTarget>(&body)) {
    on_start_target(*start_target);
  } else if (std::holds_alternative<proto::EndTransfer>(body)) {
    end_transfer();
  } else if (const auto* done = std::get_if<proto::JobDone>(&body)) {
    if (done->exit_code == kEndedOnNotice)
      return;  // the members were excluded and end by themselves
    for (const auto& [id, member] : members_) {
      if (!member.reaped) emit(KillMember{id});
    }
  }
}

void AgentCore::on_member(proto::MemberId id, const proto::Body& body) {
  const auto found = members_.find(id);
  if (const auto* join = std::get_if<proto::Join>(&body)) {
    if (found == members_.end())
      return refuse(id, fmt::format("member {} was not started by this agent", id));
    if (join->member != id || found->second.slot || found->second.reaped ||
        std::find(waiting_.begin(), waiting_.end(), id) != waiting_.end()) {
      return refuse(id, fmt::format("member {} has joined before", id));
    }
    on_join(*join);
  } else if (const auto* failure = std::get_if<proto::Failure>(&body)) {
    on_failure(id, *failure);
  } else if (found == members_.end() || !found->second.slot || found->second.dead) {
    return;  // its connection was refused, or it is dead
  } else if (std::holds_alternative<proto::Ready>(body)) {
    on_ready(id);
  } else if (const auto* contacts = std::get_if<proto::Contacts>(&body)) {
    on_contact(id, *contacts);
  } else if (const auto* suspect = std::get_if<proto::PeerSuspect>(&body)) {
    emit(ToCoordinator{*suspect});
  } else if (const auto* diverged = std::get_if<proto::Diverged>(&body)) {
    emit(ToCoordinator{proto::Diverged{id, diverged->why}});
  } else if (std::holds_alternative<proto::Drained>(body)) {
    found->second.drained = true;
    emit(ToCoordinator{proto::MemberDrained{id}});
  }
}

void AgentCore::on_ready(proto::MemberId id) {
  Local& member = members_.at(id);
  if (member.ready) return;
  member.ready = true;
  emit(WatchLine{id, *member.slot});
  emit(ToCoordinator{proto::MemberReady{*member.slot, member.join}});
}

// The member is about to end. A failure that ends the job is forwarded at once, before its process
// has ended.
void AgentCore::on_failure(proto::MemberId id, const proto::Failure& failure) {
  const auto found = members_.find(id);
  if (found == members_.end() || found->second.reaped) return;
  proto::Failure& known = found->second.loss.failure;
  if (known.known()) return;  // later failures follow from the first
  known = failure;
  if (known.final) emit(ToCoordinator{known});
}

// A restarted coordinator asks for the lines: the agent also repeats every fact that it may have
// missed. Drained members come first, so that the coordinator does not take them for starting ones.
void AgentCore::on_hello() {
  end_transfer();
  for (const auto& [id, member] : members_) {
    const bool lives = member.ready && !member.dead;
    if (lives && member.drained) emit(ToCoordinator{proto::MemberDrained{id}});
  }
  proto::HelloReply reply{world_->generation, revoked_, report()};
  for (const auto& [id, member] : members_) {
    if (!member.slot)
      reply.lines.push_back({.member = id, .slot = proto::kNoSlot, .alive = !member.reaped});
  }
  if (first_) reply.declared = *first_;
  emit(ToCoordinator{std::move(reply)});
  send_contacts();
  for (const auto& [id, member] : members_) {
    const bool lives = member.ready && !member.dead;
    if (lives && world_->rank_of(id) < 0)
      emit(ToCoordinator{proto::MemberReady{*member.slot, member.join}});
    if (member.dead || member.reaped) emit(ToCoordinator{member.loss});
    if (member.loss.failure.final) emit(ToCoordinator{member.loss.failure});
  }
}

void AgentCore::on_revoke(proto::Generation g) {
  revoked_ = std::max(revoked_, g);
  for (proto::SlotIndex slot = 0; arena_.mapped() && slot < arena_.spec().slots; ++slot) {
    shmem::MemberSlot& line = arena_.member_slot(slot);
    if (line.occupied.load(std::memory_order_acquire) == 0) continue;
    shmem::revoke<shmem::RealPolicy>(line.state, line.revoked_up_to, revoked_);
    shmem::ring(line.bell);
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
  contacts_ = {world.generation, {}};
  if (!arena_.mapped()) {  // no member has joined here, so none is in the World
    world_ = announce.world;
    return;
  }
  on_world_in_transfer(world);
  if (const base::Status status = arena_.publish_world(world); !status.ok()) {
    return emit(Warn{status.to_string()});
  }
  world_ = announce.world;
  shmem::ring_all(arena_);
  if (!plan_holds(world)) {
    emit(Warn{fmt::format("World {} needs partial sums that no longer exist", world.generation)});
    on_revoke(world.generation);
  }
  retry_joins();
}

// Contacts are sent once all members of the World on this node have published theirs, since the
// others need all of them. A member may publish another one later.
void AgentCore::on_contact(proto::MemberId id, const proto::Contacts& own) {
  if (own.generation != world_->generation || own.members.size() != 1 || world_->rank_of(id) < 0)
    return;
  const proto::Contact contact{id, own.members[0].address};
  const auto known = std::ranges::find(contacts_.members, id, &proto::Contact::member);
  if (known == contacts_.members.end()) {
    contacts_.members.push_back(contact);
  } else if (*known == contact) {
    return;
  } else {
    *known = contact;
  }
  send_contacts();
}

void AgentCore::send_contacts() {
  const auto here =
      std::count_if(world_->members.begin(), world_->members.end(),
                    [&](const proto::WorldMember& m) { return m.slot_id.node == options_.node; });
  if (here == 0 || contacts_.members.size() < static_cast<std::size_t>(here)) return;
  emit(ToCoordinator{contacts_});
}

void AgentCore::on_contacts(const proto::Contacts& all) {
  if (all.generation != world_->generation || !arena_.mapped()) return;
  for (const proto::WorldMember& m : world_->members) {
    const auto found = members_.find(m.id);
    if (m.slot_id.node != options_.node || found == members_.end() || found->second.dead) continue;
    emit(ToMember{m.id, all});
    emit(Ring{m.slot_id.slot});
  }
}

void AgentCore::on_notice(proto::MemberId id) {
  const auto found = members_.find(id);
  if (found == members_.end() || found->second.reaped) return;
  if (!found->second.slot) return emit(KillMember{id});
  shmem::MemberSlot& line = arena_.member_slot(*found->second.slot);
  line.leave_request.store(shmem::kAtBoundary, std::memory_order_release);
  shmem::ring(line.bell);
}

void AgentCore::on_kill(const proto::Kill& kill) {
  const auto found = members_.find(kill.member);
  if (found == members_.end() || found->second.reaped) return;
  if (!kill.gently || !found->second.slot || found->second.dead)
    return emit(KillMember{kill.member});
  emit(ToMember{kill.member, proto::Excluded{kill.reason}});
  emit(ReleaseMember{*found->second.slot});
}

void AgentCore::release(proto::SlotIndex slot) {
  arena_.member_slot(slot).leave_request.store(shmem::kNow, std::memory_order_release);
  shmem::ring(arena_.member_slot(slot).bell);
}

AgentEffects AgentCore::on_line_dead(proto::SlotIndex slot) {
  const std::uint32_t owner =
      arena_.mapped() && slot < arena_.spec().slots
          ? arena_.member_slot(slot).occupied.load(std::memory_order_acquire)
          : 0;
  if (owner == 0) return {};
  const auto found = members_.find(owner - 1);
  if (found == members_.end() || found->second.dead) return {};
  found->second.loss.why = fmt::format("member {}: its training thread has ended", owner - 1);
  mark_dead(owner - 1, &found->second);
  emit(ToCoordinator{found->second.loss});
  return effects();
}

AgentEffects AgentCore::on_stuck(proto::MemberId id, const std::string& why) {
  const auto found = members_.find(id);
  if (found == members_.end() || !found->second.slot || found->second.dead) return {};
  found->second.loss.why = why;
  mark_dead(id, &found->second);
  emit(ToCoordinator{found->second.loss});
  return effects();
}

AgentEffects AgentCore::on_link_closed(proto::MemberId id) {
  const auto found = members_.find(id);
  if (found == members_.end() || !found->second.slot || found->second.dead) return {};
  const shmem::MemberSlot& line = arena_.member_slot(*found->second.slot);
  const bool done = line.finished.load(std::memory_order_acquire) != 0 ||
                    line.leave_request.load(std::memory_order_acquire) == shmem::kNow;
  if (!done) emit(KillMember{id});
  return effects();
}

AgentEffects AgentCore::on_reaped(proto::MemberId id, std::int32_t pid, std::int32_t exit_code,
                                  std::int32_t signal) {
  Local& member = members_[id];
  if (member.reaped) return {};
  mark_dead(id, &member);
  member.reaped = member.loss.reaped = true;
  member.loss.exit_code = exit_code;
  member.loss.signal = signal;
  const std::string what = signal != 0
                               ? fmt::format("killed by signal {}{}", signal, abbreviation(signal))
                               : fmt::format("exited with status {}", exit_code);
  const bool early = signal == 0 && exit_code == 0 && member.ready && !member.loss.finished;
  member.loss.why =
      fmt::format("member {} (pid {}): {}{}", id, pid, what, early ? " before finish()" : "");
  emit(ToCoordinator{member.loss});
  retry_joins();
  return effects();
}

// The member will store nothing to a result any more, so no member needs to wait for it.
void AgentCore::mark_dead(proto::MemberId id, Local* member) {
  if (member->dead) return;
  member->dead = true;
  target_.forget(id);
  member->loss.member = id;
  member->loss.joined = member->ready;
  if (!member->slot) return;
  shmem::MemberSlot& line = arena_.member_slot(*member->slot);
  member->loss.finished = line.finished.load(std::memory_order_acquire) != 0;
  member->loss.step = line.step.load(std::memory_order_relaxed);
  line.dead.store(1, std::memory_order_release);
  shmem::ring_all(arena_);
}

}  // namespace regroup::membership
