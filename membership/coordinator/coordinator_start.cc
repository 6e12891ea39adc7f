// The processes of the job: first launch, replacements, relaunches of programs that never join,
// time limits, and requests to leave.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/printable.h"
#include "membership/coordinator/coordinator.h"
#include "membership/coordinator/departure.h"
#include "membership/coordinator/hang_verdict.h"

namespace regroup::membership {
namespace {

constexpr base::Duration kMostBetweenTicks = std::chrono::seconds(1);
constexpr proto::MemberId kIdsAhead = 16;

// "member 3 on host b"; without the host if the job has a single one.
std::string name_of(const MemberInfo& member, const NodeTable& nodes) {
  const NodeTable::Node* node = nodes.size() > 1 ? nodes.find(member.slot_id.node) : nullptr;
  return fmt::format("member {}{}", member.id,
                     node == nullptr || node->name.empty() ? "" : " on host " + node->name);
}

}  // namespace

void Coordinator::start_members() {
  if (stage_ == Stage::kHello || stage_ == Stage::kRelaunching || members_.any_finished()) return;
  if (nodes_.empty()) return;
  if (!launch_.made()) return launch();
  // A program that never joins is only ever relaunched, and World 1 waits for no replacement.
  if (!launch_.joined()) return;
  if (world_.generation == 0 && members_.staying() >= policy_.min) return;
  hold_nodes();
  for (const MemberStart& one : missing_members(now_, members_, size_, policy_.spares, budget_)) {
    update_loads();
    if (nodes_.is_held(nodes_.next())) return;
    start_one(one);
    if (done()) return;
  }
}

void Coordinator::update_loads() {
  members_.end_edits();
  for (const auto& [changed, processes] : members_.take_loads())
    nodes_.set_load(changed, processes);
}

void Coordinator::start_one(const MemberStart& start) {
  const proto::MemberId id = members_.next_id();
  if (members_.find(id) != nullptr) return end(1, "no member ID is left");
  // Reserved on disk: if this coordinator dies together with the member's node, nothing else tells
  // its successor that the id was used.
  if (job_.driver_reports_nodes() && id >= members_.promised_below()) {
    const std::uint32_t wanted = size_.desired() + policy_.spares, staying = members_.staying();
    members_.promise_below(id + std::max(kIdsAhead, wanted > staying ? wanted - staying : 0));
    journal_intent();
  }
  update_loads();
  const proto::NodeId node = job_.placed.empty() ? nodes_.next() : job_.placed.at(start.rank);
  MemberInfo& member = members_.add(id, node, now_);
  member.first_rank = start.rank;
  member.restart_slot = start.restart_slot;
  limits_.started(now_);
  // An earlier launch has printed this traceback.
  if (budget_.row().passed_on) outbox_.send(node, budget_.row().failure);
  outbox_.send(node, proto::Start{id, start.rank, start.world_size, launch_.restarts(),
                                  refused_devices_.of(node)});
}

void Coordinator::dismiss_launch() {
  stage_ = Stage::kRelaunching;
  for (auto& [id, r] : members_.edit_all()) {
    if (r.state == MemberState::kStarting) dismiss(&r, false, "relaunch");
  }
}

// Starts all members together, on the slots that are not in back-off.
void Coordinator::launch() {
  const std::uint32_t most = job_.driver_reports_nodes() ? size_.capacity() : kUnlimited;
  const std::uint32_t launched = launch_.begin(now_, most, members_.next_id());
  size_.launch(launched);
  stage_ = Stage::kStarting;
  // Journaled before they start: a successor learns nothing else about members that die before the
  // first join.
  Intent ahead = intent();
  members_.promise_below(ahead.next_member += launched);
  journal(std::move(ahead));
  for (std::uint32_t rank = 0; rank < launched && !done(); ++rank)
    start_one({rank, launched, rank});
}

void Coordinator::relaunch() {
  if (members_.processes() > 0 || now_ < launch_.due() || nodes_.empty()) return;
  launch();
}

// Performs in the order of Limits::Due.
void Coordinator::enforce_limits() {
  if (members_.any_finished() && members_.count(MemberState::kWarm) > 0) {
    for (auto& [id, r] : members_.edit_all()) {
      if (r.state == MemberState::kWarm) dismiss(&r, true, "the job is finishing");
    }
  }
  const Limits::Due due = limits_.due(now_, limited(), &members_);
  for (const proto::MemberId id : due.kill)
    outbox_.send(members_.find(id)->slot_id.node,
                 proto::Kill{id, false, "it did not exit in time"});
  if (due.end) return end(1, *due.end);
  for (const proto::MemberId id : due.unready) {
    end_unready(members_.edit(id));
    if (done()) return;
  }
  for (const proto::MemberId id : std::set(members_.waiting_to_leave()))
    ask_to_leave(members_.edit(id));
  if (due.straggling == Limits::StragglerAction::kQuery) outbox_.send_to_all(proto::Query{});
  if (due.straggling == Limits::StragglerAction::kRegroup)
    start_regroup("some members have finished, others do not know it yet");
  if (!due.query) return;
  // A leaving member may be replaced once a copy is proved.
  limits_.queried(now_, !members_.waiting_to_leave().empty());
  outbox_.send_to_all(proto::Query{});
  watch_progress();
}

Limits::Circumstances Coordinator::limited() const {
  Limits::Circumstances at{
      .has_world = world_.generation > 0, .steady = stage_ == Stage::kSteady, .least = least()};
  if (launch_.joined()) at.joined_at = launch_.joined_at();
  return at;
}

void Coordinator::end_unready(MemberInfo* member) {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(policy_.ready_timeout).count();
  outbox_.note(fmt::format("member {} was not ready within {} s", member->id, seconds));
  member->cause = fmt::format("not being ready within {} s", seconds);
  refuse_member(member, "not ready in time");
  if (!done() && world_.generation == 0 && members_.staying() < policy_.min) {
    end(1, fmt::format("member {} was not ready within {} s: {} of at least {}", member->id,
                       seconds, members_.staying(), base::counted(policy_.min, "member")));
  }
}

// Judges by the reports of the last query.
void Coordinator::watch_progress() {
  if (stage_ != Stage::kSteady || policy_.hang_timeout == base::Duration()) return;
  const bool long_quiet = policy_.on_hang != proto::OnHang::kReport &&
                          watch_.is_long_quiet(awake_, policy_.hang_timeout);
  if (!long_quiet && !watch_.is_quiet(awake_, policy_.hang_timeout)) return;
  if (suspicions_.any_silent()) return;
  const auto found = watch_.find_stall(awake_, world_, [this](proto::MemberId id) {
    const MemberInfo* r = members_.find(id);
    return r != nullptr && (r->state == MemberState::kActive || r->state == MemberState::kDraining);
  });
  if (!found) return;
  const HangVerdict verdict = judge_hang(*found, long_quiet, world_, members_, nodes_, policy_);
  outbox_.note(verdict.sentence);
  if (verdict.kill.empty()) return;
  for (const proto::MemberId id : verdict.kill) {
    MemberInfo* r = members_.edit(id);
    if (policy_.on_hang == proto::OnHang::kDrop && !r->leave_wanted) {
      size_.drop_one();
      r->leave_wanted = true;
    }
    kill_member(r, EndedBy::kHang, "hung");
  }
  if (policy_.on_hang == proto::OnHang::kDrop) journal_intent();
}

// Reduces the job to the desired number of members.
void Coordinator::shrink() {
  for (const proto::MemberId id : surplus(members_, size_.desired(), policy_.spares)) {
    MemberInfo& r = *members_.edit(id);
    if (r.state != MemberState::kActive) {
      dismiss(&r, r.state == MemberState::kWarm, "the job was made smaller");
      continue;
    }
    r.move_to(MemberState::kDraining);
    outbox_.send(r.slot_id.node, proto::Notice{id});
  }
}

// A member that leaves lowers the target, down to min. A member whose state is still needed, or
// without which the World would be too small, gets its notice once the others can do without it.
void Coordinator::ask_to_leave(MemberInfo* member) {
  const bool spare = !member->in_world() && members_.staying() > size_.desired();
  if (!member->leave_wanted && !spare) {
    size_.leave_one();
    member->leave_wanted = true;
    journal_intent();
  }
  const bool slots = nodes_.slots() > 0;
  const bool coming = members_.count(MemberState::kStarting, MemberState::kWarm) > 0;
  const LeaveTerms terms{
      .min = policy_.min,
      .room_for_successor = slots && world_.size() < policy_.max &&
                            (members_.processes() < size_.capacity() || coming),
      .successor_may_start =
          slots && policy_.replace && budget_.any_left(size_.desired(), members_.used_slots())};
  switch (how_to_leave(*member, members_, terms)) {
    case Leave::kDismiss:
      return dismiss(member, member->state == MemberState::kWarm, "asked to leave");
    case Leave::kWait:
      return;
    case Leave::kNotice:
      member->move_to(MemberState::kDraining);
      return outbox_.send(member->slot_id.node, proto::Notice{member->id});
    case Leave::kDrained:
      member->move_to(MemberState::kDrained);
      return;
  }
}

void Coordinator::dismiss(MemberInfo* member, bool gently, const std::string& reason) {
  member->move_to(MemberState::kGone);
  member->set_ended_by(EndedBy::kCoordinator);
  if (gently) member->kill_at = now_ + policy_.leave_grace;
  outbox_.send(
      member->slot_id.node,
      proto::Kill{member->id, gently, fmt::format("{}: {}", name_of(*member, nodes_), reason)});
}

// A member that cannot become ready: its slot is charged with the failure, unless a user has killed
// it.
void Coordinator::refuse_member(MemberInfo* member, const std::string& reason) {
  const bool failed = member->ended_by != EndedBy::kUser;
  dismiss(member, false, reason);
  not_replaced(*member);
  if (failed) charge(member);
}

std::optional<base::TimePoint> Coordinator::next_deadline() const {
  if (done()) return std::nullopt;
  base::TimePoint next = now_ + kMostBetweenTicks;
  const auto consider = [&](base::TimePoint at) {
    if (at > now_) next = std::min(next, at);
  };
  consider(budget_.next_change(now_).value_or(now_));
  if (stage_ == Stage::kRelaunching) consider(launch_.due());
  consider(limits_.next_change(now_).value_or(now_));
  consider(members_.earliest_kill());
  return next;
}

}  // namespace regroup::membership
