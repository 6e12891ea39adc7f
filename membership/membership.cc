// Implements the decision of docs/design/architecture.md section 4. Invariants:
// - Equal rosters and policies give equal verdicts: decide() has no state and uses `now` only to
// say
//   how much time is left. So a regroup depends on facts and never on a timeout.
// - Members that stay come first, in the order that they had in the World before.
// - After a finish() no member joins, and a new World is formed only for living members that have
//   not learned of the finish().
// - Before a finish() no World has fewer than MIN members.
#include "membership/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <unordered_map>

#include "base/printable.h"

namespace regroup::membership {
namespace {

using Ids = std::vector<proto::MemberId>;

constexpr std::size_t kMostReasons = 8;  // that one sentence lists

// The members of a roster by their part in the next World.
struct Tally {
  explicit Tally(const Roster& roster) {
    for (const Member& m : roster.members) {
      finishing |= m.finished;
      switch (m.state) {
        case MemberState::kStarting:
          starting += 1;
          break;
        case MemberState::kWarm:
          (is_learner(m.catch_up) ? learning : warm).push_back(m.id);
          break;
        case MemberState::kActive:
        case MemberState::kDraining:
          stay.push_back(m.id);
          leaving += m.leave_wanted || m.state == MemberState::kDraining;
          unfinished |= !m.finished;
          break;
        case MemberState::kDrained:
          reasons.push_back(leaves(m));
          break;
        case MemberState::kLost:
          if (!m.finished) reasons.push_back(lost(m));
          break;
        case MemberState::kGone:
          continue;
      }
      in_world += m.state >= MemberState::kActive;
    }
  }

  static std::string leaves(const Member& m) {
    return fmt::format("member {} leaves on notice at a step boundary", m.id);
  }
  static std::string lost(const Member& m) {
    return m.cause.empty() ? fmt::format("member {} was lost", m.id)
                           : fmt::format("member {} was lost ({})", m.id, m.cause);
  }

  Ids stay, warm, learning;
  std::vector<std::string> reasons;  // why members of this World are not in the next
  std::uint32_t in_world = 0, starting = 0, leaving = 0;
  bool finishing = false,
       unfinished = false;  // some member has finished; some living member has not
};

long seconds_left(base::TimePoint now, const Roster& roster, const Policy& policy) {
  base::Duration left = policy.min_members_timeout;
  if (roster.below_min_since != base::TimePoint{}) left -= now - roster.below_min_since;
  return std::max<long>(0, std::chrono::ceil<std::chrono::seconds>(left).count());
}

std::string members(std::size_t n) { return base::counted(n, "member"); }

Verdict decide_first(base::TimePoint now, const Tally& tally, const Roster& roster,
                     const Policy& policy) {
  const std::size_t ready = tally.warm.size();
  if (tally.starting > 0) return {.why = still_starting(ready, tally.starting)};
  if (ready < policy.min) {
    return {.why = fmt::format("{} of at least {} ready, {} s of --min-members-timeout left", ready,
                               members(policy.min), seconds_left(now, roster, policy))};
  }
  // If lost members are not replaced, notices may have lowered the target below min.
  const std::uint32_t wanted = std::max(policy.target, policy.min);
  Ids next(tally.warm.begin(), tally.warm.begin() + std::min<std::ptrdiff_t>(ready, wanted));
  if (policy.fixed) std::sort(next.begin(), next.end());
  const std::size_t size = next.size();
  const char* verb = size == 1 ? "is" : "are";
  return {.next = std::move(next),
          .why = size < policy.target
                     ? fmt::format("{} of {} {} ready", size, members(policy.target), verb)
                     : fmt::format("the first {} {} ready", members(size), verb)};
}

Ids joiners(const Tally& tally, const Policy& policy) {
  const std::size_t size = tally.stay.size(), staying = size - tally.leaving;
  const std::size_t room = std::min(policy.target > staying ? policy.target - staying : 0,
                                    policy.max > size ? policy.max - size : 0);
  const std::size_t n =
      tally.finishing || tally.stay.empty() ? 0 : std::min(room, tally.warm.size());
  return {tally.warm.begin(), tally.warm.begin() + static_cast<std::ptrdiff_t>(n)};
}

std::string sentence(const Tally& tally, const Ids& join, std::size_t size) {
  std::vector<std::string> reasons = tally.reasons;
  for (proto::MemberId id : join) reasons.push_back(fmt::format("member {} is warm", id));
  if (reasons.empty()) reasons.emplace_back("the generation was revoked");
  if (reasons.size() > kMostReasons) {  // keep it short: every member receives it
    const std::size_t others = reasons.size() - kMostReasons;
    reasons.resize(kMostReasons);
    reasons.push_back(fmt::format("{} more", others));
  }
  return fmt::format("{}: {} -> {}", fmt::join(reasons, ", "), tally.in_world, members(size));
}

}  // namespace

const char* state_name(MemberState state) {
  switch (state) {
    case MemberState::kStarting:
      return "starting";
    case MemberState::kWarm:
      return "warm";
    case MemberState::kActive:
      return "active";
    case MemberState::kDraining:
      return "leaving";
    case MemberState::kDrained:
      return "drained";
    case MemberState::kLost:
      return "lost";
    case MemberState::kGone:
      return "gone";
  }
  return "";
}

bool may_follow(MemberState from, MemberState to) {
  return from == to || std::ranges::any_of(kMemberTransitions, [&](const MemberTransition& one) {
           return one.from == from && one.to == to;
         });
}

CatchUp after(CatchUp state, CatchUpEvent event) {
  using enum CatchUp;
  // Rows: the event; columns: the state before.
  static constexpr CatchUp kAfter[][4] = {
      // kCopy, kLearning, kCaughtUp, kReplays
      {kLearning, kLearning, kCaughtUp, kCaughtUp},  // kOrdered
      {kReplays, kCaughtUp, kCaughtUp, kReplays},    // kDone
      {kCopy, kLearning, kReplays, kReplays},        // kAdmitted
      {kCopy, kLearning, kLearning, kCopy},          // kUndone
      {kCopy, kCopy, kReplays, kReplays},            // kGivenUp
  };
  return kAfter[static_cast<std::size_t>(event)][static_cast<std::size_t>(state)];
}

std::string still_starting(std::size_t ready, std::size_t starting) {
  return fmt::format("{} of {} {} ready", ready, members(ready + starting),
                     ready == 1 ? "is" : "are");
}

bool may_decide(const MemberCounts& counts, const Policy& policy) {
  if (!counts.started) return counts.starting == 0;
  if (counts.breaking > 0 && (!counts.finishing || counts.unfinished)) return true;
  const bool wanted = counts.in_world + counts.warm < policy.min;
  const std::uint32_t warm = wanted ? counts.warm + counts.learning : counts.warm;
  return warm > 0 && !counts.finishing && policy.target > counts.staying &&
         policy.max > counts.in_world;
}

Verdict decide(base::TimePoint now, const Roster& roster, const Policy& policy) {
  Tally tally(roster);
  if (tally.stay.size() + tally.warm.size() <
      policy.min) {  // training cannot go on without these learners, so do not wait for catch-up
    tally.warm.insert(tally.warm.end(), tally.learning.begin(), tally.learning.end());
  }
  if (!roster.started) return decide_first(now, tally, roster, policy);
  // After a finish() everything is committed: only members that have not learned of it need a
  // World.
  const bool broken = !tally.reasons.empty() && (!tally.finishing || tally.unfinished);
  const Ids join = joiners(tally, policy);
  if (!broken && !roster.revoked && join.empty()) {
    return {.why = tally.starting > 0
                       ? fmt::format("{}, {} starting", members(tally.stay.size()), tally.starting)
                       : members(tally.stay.size())};
  }
  if (tally.stay.empty()) return {.broken = broken, .why = "no member of the World is left"};
  Ids next = tally.stay;
  next.insert(next.end(), join.begin(), join.end());
  if (next.size() < policy.min && !tally.finishing) {
    return {.broken = broken,
            .why = fmt::format(
                "{} of at least {}: holding the state, {} s of --min-members-timeout left",
                next.size(), members(policy.min), seconds_left(now, roster, policy))};
  }
  const std::string why = sentence(tally, join, next.size());
  return {.next = std::move(next), .broken = broken, .why = why};
}

std::vector<proto::MemberId> learners(const Roster& roster, const Policy& policy) {
  Tally tally(roster);
  const std::size_t warm = tally.warm.size();
  tally.warm.insert(tally.warm.end(), tally.learning.begin(), tally.learning.end());
  Ids ids = joiners(tally, policy);
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(std::min(warm, ids.size())));
  return ids;
}

// Dead members count: a step that one of them has committed had the votes of all members, and
// another may have applied it. A member's word counts only from the step at which it entered the
// World.
proto::Position resume_of(const proto::World& before,
                          const std::map<proto::NodeId, std::vector<proto::SlotReport>>& slots) {
  proto::Position resume = before.resume;
  std::unordered_map<proto::MemberId, proto::Step> from_steps;
  for (const proto::WorldMember& m : before.members) from_steps.emplace(m.id, m.from_step);
  for (const auto& [node, of_node] : slots) {
    for (const proto::SlotReport& slot : of_node) {
      const auto from = from_steps.find(slot.member);
      if (from == from_steps.end()) continue;
      resume = std::max(resume, proto::committed_up_to(slot.state, from->second));
    }
  }
  return resume;
}

}  // namespace regroup::membership
