// The tables of a member's states.
#include <gtest/gtest.h>

#include <set>

#include "membership/coordinator/member_table.h"

namespace regroup::membership {
namespace {

constexpr MemberState kLife[] = {
    MemberState::kStarting, MemberState::kWarm, MemberState::kActive, MemberState::kDraining,
    MemberState::kDrained,  MemberState::kLost, MemberState::kGone};
constexpr CatchUp kWays[] = {CatchUp::kCopy, CatchUp::kLearning, CatchUp::kCaughtUp,
                             CatchUp::kReplays};

TEST(MemberStates, EveryStateIsReachedAndTheLastOneIsFinal) {
  std::set<MemberState> reached{MemberState::kStarting};
  for (const MemberTransition& one : kMemberTransitions) {
    EXPECT_TRUE(reached.contains(one.from)) << "the table goes along a life";
    EXPECT_NE(one.from, MemberState::kGone);
    reached.insert(one.to);
  }
  EXPECT_EQ(reached.size(), std::size(kLife));
}

TEST(MemberStates, AMemberNeverGoesBack) {
  for (const MemberState from : kLife) {
    EXPECT_TRUE(may_follow(from, from));
    for (const MemberState to : kLife) {
      EXPECT_FALSE(to < from && may_follow(from, to)) << state_name(from) << state_name(to);
    }
  }
}

TEST(MemberStates, AMemberOfTheWorldIsLostBeforeItIsGone) {
  for (const MemberState state : {MemberState::kActive, MemberState::kDraining}) {
    EXPECT_TRUE(may_follow(state, MemberState::kLost));
    EXPECT_FALSE(may_follow(state, MemberState::kGone)) << "its seals still count";
  }
  EXPECT_FALSE(may_follow(MemberState::kWarm, MemberState::kLost)) << "it is in no World";
}

TEST(CatchUpStates, ALearnerCatchesUpAndIsAdmitted) {
  MemberInfo r;
  EXPECT_FALSE(is_learner(r.catch_up));
  r.catch_up_with(CatchUpEvent::kOrdered);
  EXPECT_TRUE(is_learner(r.catch_up));
  EXPECT_FALSE(has_caught_up(r.catch_up));
  r.catch_up_with(CatchUpEvent::kAdmitted);
  EXPECT_EQ(r.catch_up, CatchUp::kLearning) << "it has not caught up";
  r.catch_up_with(CatchUpEvent::kDone);
  EXPECT_TRUE(is_learner(r.catch_up) && has_caught_up(r.catch_up));
  r.catch_up_with(CatchUpEvent::kAdmitted);
  EXPECT_EQ(r.catch_up, CatchUp::kReplays);
}

TEST(CatchUpStates, EachEventChangesOneOfTheTwoFacts) {
  for (const CatchUp way : kWays) {
    const auto learner = [&](CatchUpEvent event) { return is_learner(after(way, event)); };
    const auto caught_up = [&](CatchUpEvent event) { return has_caught_up(after(way, event)); };
    EXPECT_TRUE(learner(CatchUpEvent::kOrdered));
    EXPECT_EQ(caught_up(CatchUpEvent::kOrdered), has_caught_up(way));
    EXPECT_TRUE(caught_up(CatchUpEvent::kDone));
    EXPECT_EQ(learner(CatchUpEvent::kDone), is_learner(way));
    EXPECT_FALSE(caught_up(CatchUpEvent::kUndone));
    EXPECT_EQ(learner(CatchUpEvent::kUndone), is_learner(way));
    EXPECT_FALSE(learner(CatchUpEvent::kGivenUp));
    EXPECT_EQ(caught_up(CatchUpEvent::kGivenUp), has_caught_up(way));
    EXPECT_EQ(caught_up(CatchUpEvent::kAdmitted), has_caught_up(way));
  }
}

TEST(EndOfAMember, AHungOneThatAUserKillsTooHasHung) {
  MemberInfo r;
  r.set_ended_by(EndedBy::kUser);
  r.set_ended_by(EndedBy::kHang);
  r.set_ended_by(EndedBy::kUser);
  EXPECT_EQ(r.ended_by, EndedBy::kHang);
  r.set_ended_by(EndedBy::kCoordinator);
  EXPECT_EQ(r.ended_by, EndedBy::kCoordinator);
}

TEST(ReportOfAMember, WhatItHasOnceSaidStays) {
  MemberInfo r;
  r.take_report({.member = 0, .finished = true, .step = 7, .proved = true, .caught_up_to = 5});
  r.take_report({.member = 0, .step = 8});
  EXPECT_EQ(r.step, 8U);
  EXPECT_EQ(r.reports, 2U);
  EXPECT_TRUE(r.finished && r.proved);
  EXPECT_EQ(r.caught_up_to, 5U);
}

TEST(EndOfAMember, AFailedProcessHasAStatusOtherThanZero) {
  MemberInfo r;
  EXPECT_FALSE(r.reaped());
  EXPECT_EQ(r.failed_status(), 1);
  r.status = 0;
  EXPECT_TRUE(r.reaped());
  EXPECT_EQ(r.failed_status(), 1);
  r.status = 139;
  EXPECT_EQ(r.failed_status(), 139);
}

}  // namespace
}  // namespace regroup::membership
