// decide(): rosters in, members and sentences out.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "membership/membership.h"

namespace regroup::membership {
namespace {

using S = MemberState;
using Ids = std::vector<proto::MemberId>;
constexpr base::TimePoint kNow{std::chrono::seconds(1000)};

Member in(proto::MemberId id, S state, std::string cause = "") {
  return {.id = id,
          .slot_id = {0, static_cast<proto::SlotIndex>(id)},
          .state = state,
          .cause = std::move(cause)};
}
Member finished(proto::MemberId id, S state) {
  Member m = in(id, state);
  m.finished = true;
  return m;
}
Member leaving(proto::MemberId id) {
  Member m = in(id, S::kActive);
  m.leave_wanted = true;
  return m;
}

struct Row {
  const char* name;
  std::vector<Member> members;
  Ids next;  // empty: none
  bool broken;
  const char* why;
  bool started = true, revoked = false;
  int below_min_for = 0;  // seconds
};

constexpr Policy kPolicy{.min = 2, .max = 4, .target = 3, .slots = 4, .shards = 8};

const Row kRows[] = {
    {"steady", {in(0, S::kActive), in(1, S::kActive)}, {}, false, "2 members"},
    {"steady, one starting",
     {in(0, S::kActive), in(1, S::kActive), in(2, S::kStarting)},
     {},
     false,
     "2 members, 1 starting"},
    {"killed",
     {in(0, S::kActive), in(2, S::kLost, "killed by signal 9"), in(1, S::kActive)},
     {0, 1},
     true,
     "member 2 was lost (killed by signal 9): 3 -> 2 members"},
    {"lost, cause not known yet",
     {in(0, S::kLost), in(1, S::kActive), in(2, S::kActive)},
     {1, 2},
     true,
     "member 0 was lost: 3 -> 2 members"},
    {"joiner",
     {in(0, S::kActive), in(1, S::kActive), in(4, S::kWarm)},
     {0, 1, 4},
     false,
     "member 4 is warm: 2 -> 3 members"},
    {"joiners only up to the target",
     {in(0, S::kActive), in(1, S::kActive), in(5, S::kWarm), in(4, S::kWarm)},
     {0, 1, 5},
     false,
     "member 5 is warm: 2 -> 3 members"},
    {"spare waits",
     {in(0, S::kActive), in(1, S::kActive), in(2, S::kActive), in(3, S::kWarm)},
     {},
     false,
     "3 members"},
    {"successor of one about to leave",
     {leaving(0), in(1, S::kActive), in(2, S::kActive), in(3, S::kWarm)},
     {0, 1, 2, 3},
     false,
     "member 3 is warm: 3 -> 4 members"},
    {"lost and replaced at once keeps the order",
     {in(7, S::kActive), in(2, S::kLost), in(3, S::kActive), in(9, S::kWarm)},
     {7, 3, 9},
     true,
     "member 2 was lost, member 9 is warm: 3 -> 3 members"},
    {"leaves",
     {in(0, S::kActive), in(1, S::kDrained), in(2, S::kActive)},
     {0, 2},
     true,
     "member 1 leaves on notice at a step boundary: 3 -> 2 members"},
    {"draining still works",
     {in(0, S::kActive), in(1, S::kDraining), in(2, S::kActive)},
     {},
     false,
     "3 members"},
    {"below min holds",
     {in(0, S::kActive), in(1, S::kLost)},
     {},
     true,
     "1 of at least 2 members: holding the state, 27 s of --min-members-timeout left",
     true,
     true,
     3},
    {"below min until a joiner is warm",
     {in(0, S::kActive), in(1, S::kLost), in(2, S::kWarm)},
     {0, 2},
     true,
     "member 1 was lost, member 2 is warm: 2 -> 2 members"},
    {"nobody has the state",
     {in(0, S::kLost), in(1, S::kLost), in(2, S::kWarm), in(3, S::kWarm)},
     {},
     true,
     "no member of the World is left"},
    {"revoked without a change",
     {in(0, S::kActive), in(1, S::kActive)},
     {0, 1},
     false,
     "the generation was revoked: 2 -> 2 members",
     true,
     true},
    {"finishing: no joiner",
     {finished(0, S::kActive), in(1, S::kActive), in(2, S::kWarm)},
     {},
     false,
     "2 members"},
    {"finishing: a gone member is not lost",
     {finished(0, S::kLost), finished(1, S::kActive), in(2, S::kActive)},
     {},
     false,
     "2 members"},
    {"finishing: a member that does not know it needs a World, whatever min says",
     {finished(0, S::kLost), in(1, S::kLost), in(2, S::kActive)},
     {2},
     true,
     "member 1 was lost: 3 -> 1 member"},
    {"finishing: all have, one died after",
     {finished(0, S::kActive), in(1, S::kLost)},
     {},
     false,
     "1 member"},
    {"start: waits for all",
     {in(0, S::kWarm), in(1, S::kStarting), in(2, S::kWarm)},
     {},
     false,
     "2 of 3 members are ready",
     false},
    {"start: all",
     {in(0, S::kWarm), in(1, S::kWarm), in(2, S::kWarm)},
     {0, 1, 2},
     false,
     "the first 3 members are ready",
     false},
    {"start: waits for all but one",
     {in(0, S::kWarm), in(1, S::kStarting), in(2, S::kStarting)},
     {},
     false,
     "1 of 3 members is ready",
     false},
    {"start: with the ready members",
     {in(0, S::kWarm), in(2, S::kWarm)},
     {0, 2},
     false,
     "2 of 3 members are ready",
     false},
    {"start: too few",
     {in(2, S::kWarm)},
     {},
     false,
     "1 of at least 2 members ready, 20 s of --min-members-timeout left",
     false,
     false,
     10},
};

TEST(Decide, Table) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    Roster roster{.members = row.members, .started = row.started, .revoked = row.revoked};
    if (row.below_min_for > 0)
      roster.below_min_since = kNow - std::chrono::seconds(row.below_min_for);
    const Verdict v = decide(kNow, roster, kPolicy);
    EXPECT_EQ(v.next.value_or(Ids{}), row.next);
    EXPECT_EQ(v.next.has_value(), !row.next.empty());
    EXPECT_EQ(v.broken, row.broken);
    EXPECT_EQ(v.why, row.why);
  }
}

TEST(Decide, TheWaitIsRoundedUpAndNeverNegative) {
  Roster roster{.members = {in(0, S::kActive), in(1, S::kLost)}, .started = true};
  roster.below_min_since = kNow - std::chrono::milliseconds(29001);
  EXPECT_NE(decide(kNow, roster, kPolicy).why.find(" 1 s of --min-members-timeout left"),
            std::string::npos);
  roster.below_min_since = kNow - std::chrono::hours(1);
  EXPECT_NE(decide(kNow, roster, kPolicy).why.find(" 0 s of --min-members-timeout left"),
            std::string::npos);
}

TEST(Resume, IsTheHighestCommitOfAnyMemberDeadOnesIncludedAndNeverLess) {
  proto::World w{.generation = 2, .resume = proto::Position::of(4), .shards = 1};
  for (proto::MemberId id : {0U, 1U, 2U}) {
    w.members.push_back({.id = id,
                         .slot_id = {0, static_cast<proto::SlotIndex>(id)},
                         .from_step = id == 2 ? 5U : 0U});
  }
  const auto slot_report = [](proto::MemberId id, proto::Phase phase, proto::Position at,
                              bool alive = true) {
    return proto::SlotReport{.member = id,
                             .slot = static_cast<proto::SlotIndex>(id),
                             .alive = alive,
                             .state = {phase, true, 2, at}};
  };
  using proto::Phase, proto::Position;
  EXPECT_EQ(resume_of(w, {}), Position::of(4));
  EXPECT_EQ(resume_of(w, {{0,
                           {slot_report(0, Phase::kClosed, Position::of(5)),
                            slot_report(1, Phase::kCommitted, Position::of(5), false)}}}),
            Position::of(5));
  EXPECT_EQ(resume_of(w, {{0, {slot_report(0, Phase::kClosed, Position::of(6))}}}),
            Position::of(5, 255));
  // A newcomer that opens its first step has seen no section before it.
  EXPECT_EQ(resume_of(w, {{0, {slot_report(2, Phase::kClosed, Position::of(5))}}}),
            Position::of(4));
  // A slot of a process that is no member of the World does not count.
  EXPECT_EQ(resume_of(w, {{0, {slot_report(9, Phase::kCommitted, Position::of(8))}}}),
            Position::of(4));
}

// Many at once must not make a sentence that no World has room for.
TEST(Decide, NamesTheFirstOfManyReasons) {
  Roster roster{.started = true};
  roster.members.push_back(in(0, S::kActive));
  roster.members.push_back(in(1, S::kActive));
  for (proto::MemberId id = 2; id < 1000; ++id) roster.members.push_back(in(id, S::kLost));
  const Verdict verdict = decide(kNow, roster, kPolicy);
  EXPECT_EQ(verdict.next, (Ids{0, 1}));
  EXPECT_TRUE(verdict.why.ends_with("member 9 was lost, 990 more: 1000 -> 2 members"))
      << verdict.why;
}

MemberCounts census_of(const Roster& roster) {
  MemberCounts out{.started = roster.started};
  for (const Member& m : roster.members) {
    out.starting += m.state == S::kStarting;
    out.warm += m.state == S::kWarm && !is_learner(m.catch_up);
    out.learning += m.state == S::kWarm && is_learner(m.catch_up);
    out.staying += m.state == S::kActive && !m.leave_wanted;
    out.in_world += m.state == S::kActive || m.state == S::kDraining;
    out.breaking += m.state == S::kDrained || (m.state == S::kLost && !m.finished);
    out.finishing |= m.finished;
    out.unfinished |= m.state >= S::kActive && m.state <= S::kDrained && !m.finished;
  }
  return out;
}

// Whatever the roster: where the counts says that there is nothing to decide, nothing is decided.
TEST(Decide, TheCensusKnowsWhereNothingIsToBeDecided) {
  std::mt19937 random(5);
  const auto below = [&](unsigned n) {
    return std::uniform_int_distribution<unsigned>(0, n - 1)(random);
  };
  unsigned quiet = 0, next = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    Roster roster{.started = below(4) != 0};
    const unsigned first = roster.started ? 2 : 0, states = roster.started ? 5 : 2;
    for (proto::MemberId id = 0, n = below(7); id < n; ++id) {
      Member m = in(id, static_cast<S>(below(3) == 0 ? below(2) : first + below(states)));
      m.finished = m.state >= S::kActive && below(6) == 0;
      m.leave_wanted = m.state == S::kActive && below(4) == 0;
      if (m.state == S::kWarm && roster.started && below(2) == 0) m.catch_up = CatchUp::kLearning;
      roster.members.push_back(m);
    }
    const Policy policy{.min = 1 + below(3), .max = 3 + below(3), .target = 1 + below(4)};
    const Verdict verdict = decide(kNow, roster, policy);
    next += verdict.next.has_value();
    if (may_decide(census_of(roster), policy)) continue;
    ++quiet;
    ASSERT_FALSE(verdict.next) << verdict.why;
    ASSERT_FALSE(verdict.broken) << verdict.why;
  }
  EXPECT_GT(quiet, 3000U);
  EXPECT_GT(next, 3000U);
}

}  // namespace
}  // namespace regroup::membership
