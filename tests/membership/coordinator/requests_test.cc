// What is checked before a request of a control command is carried out, and the replies.
#include "membership/coordinator/requests.h"

#include <gtest/gtest.h>

#include <string>

namespace regroup::membership {
namespace {

class Requests : public testing::Test {
 protected:
  Requests() {
    for (int i = 0; i < 3; ++i)
      members_.add(members_.next_id(), 0, {}).state = MemberState::kActive;
  }
  RequestTerms terms() const { return {policy_, size_, members_, joined_, has_world_}; }
  // The reply to what changes nothing; "" if the request is to be carried out.
  static std::string said(const std::optional<proto::Reply>& reply) {
    return reply ? (reply->ok ? "ok: " : "") + reply->message : "";
  }

  Policy policy_{.min = 2, .max = 6, .target = 3, .slots = 4};
  JobSize size_{policy_};
  MemberTable members_;
  bool joined_ = true;
  bool has_world_ = true;
};

TEST_F(Requests, AResizeStaysWithinTheLimitsAndTheSlots) {
  EXPECT_EQ(said(check_resize(terms(), 4)), "");
  EXPECT_EQ(said(check_resize(terms(), 1)), "resize 1: this job can have 2 to 6 members (-np 2:6)");
  EXPECT_EQ(said(check_resize(terms(), 7)), "resize 7: this job can have 2 to 6 members (-np 2:6)");
  EXPECT_EQ(said(check_resize(terms(), 5)), "resize 5: the allocation has 4 slots");
  RequestTerms with_lost_slots = terms();
  with_lost_slots.lost = 1;
  EXPECT_EQ(said(check_resize(with_lost_slots, 5)), "");
  policy_.grows = true;
  EXPECT_EQ(said(check_resize(terms(), 5)), "") << "the allocator is asked for more";
  const proto::Reply reply = resized(5, 3);
  EXPECT_TRUE(reply.ok);
  EXPECT_EQ(reply.message, "target 5, 3 in the World now");
}

TEST_F(Requests, ALaunchAndAFinishingJobAreNotResized) {
  joined_ = false;
  EXPECT_EQ(said(check_resize(terms(), 4)), "") << "members of a World have joined";
  has_world_ = false;
  EXPECT_EQ(said(check_resize(terms(), 4)), "resize 4: no member has joined yet");
  joined_ = true;
  EXPECT_EQ(said(check_resize(terms(), 4)), "");
  members_.edit(1)->finished = true;
  EXPECT_EQ(said(check_resize(terms(), 4)), "resize 4: the job is finishing");
}

TEST_F(Requests, ANoticeNamesALivingMember) {
  EXPECT_EQ(said(check_notice(terms(), 1)), "");
  EXPECT_EQ(said(check_notice(terms(), 9)), "notice 9: no such member; there are 0, 1, 2");
  members_.edit(1)->state = MemberState::kLost;
  EXPECT_EQ(said(check_notice(terms(), 1)), "notice 1: no such member; there are 0, 2");
  joined_ = false;
  EXPECT_EQ(said(check_notice(terms(), 2)), "notice 2: no member has joined yet");
}

TEST_F(Requests, ASecondNoticeChangesNothing) {
  members_.edit(0)->leave_wanted = true;
  EXPECT_EQ(said(check_notice(terms(), 0)), "ok: member 0 is leaving already");
  members_.edit(1)->state = MemberState::kDraining;
  EXPECT_EQ(said(check_notice(terms(), 1)), "ok: member 1 is leaving already");
}

TEST_F(Requests, AJobThatReplacesNoneKeepsItsMinimum) {
  policy_.replace = false;
  EXPECT_EQ(said(check_notice(terms(), 0)), "");
  policy_.min = 3;
  EXPECT_EQ(said(check_notice(terms(), 0)),
            "notice 0: the job needs at least 3 members and replaces none");
  members_.edit(0)->state = MemberState::kWarm;
  EXPECT_EQ(said(check_notice(terms(), 0)), "") << "it is not in the World";
}

TEST_F(Requests, TheReplyToANoticeSaysWhenTheMemberLeaves) {
  EXPECT_EQ(noticed(*members_.find(0)).message, "member 0 leaves as soon as it can be spared");
  members_.edit(0)->state = MemberState::kDraining;
  EXPECT_EQ(noticed(*members_.find(0)).message, "member 0 leaves at the next step boundary");
}

TEST_F(Requests, ALivingMemberIsKilledInAnyState) {
  for (const auto state : {MemberState::kStarting, MemberState::kWarm, MemberState::kDrained}) {
    members_.edit(0)->state = state;
    EXPECT_EQ(said(check_kill(terms(), 0)), "") << state_name(state);
  }
  members_.edit(0)->state = MemberState::kGone;
  EXPECT_EQ(said(check_kill(terms(), 0)), "kill-member 0: no such member; there are 1, 2");
  EXPECT_EQ(killed(1).message, "member 1 is being killed");
}

}  // namespace
}  // namespace regroup::membership
