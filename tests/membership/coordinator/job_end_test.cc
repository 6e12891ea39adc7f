// When a job is over although nobody has ended it.
#include "membership/coordinator/job_end.h"

#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

using std::chrono::seconds;

const base::TimePoint kNow{seconds(1000)};

class End : public testing::Test {
 protected:
  End() {
    for (const proto::MemberId id : {0, 1}) {
      members_.add(id, 0, kNow).state = MemberState::kLost;
      world_.members.push_back({.id = id});
    }
  }
  void reap(proto::MemberId id, std::int32_t status, bool finished = false) {
    MemberInfo& r = *members_.edit(id);
    r.status = status;
    r.finished = finished;
  }
  std::optional<JobEnd> end(base::TimePoint now = kNow) {
    return how_it_ended(now, world_, members_, kNow - seconds(100));
  }
  MemberTable members_;
  proto::World world_{.generation = 4};
};

TEST_F(End, NotWhileAMemberTakesPart) {
  members_.edit(1)->state = MemberState::kDraining;
  reap(0, 1);
  EXPECT_FALSE(end().has_value());
}

TEST_F(End, TheExitStatusIsWaitedForSomeTime) {
  reap(0, 137);
  EXPECT_FALSE(end().has_value());
  const auto late = end(kNow + kStatusWait);
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->kind, JobEnd::Kind::kLost);
  EXPECT_EQ(late->sentence, "all members of generation 4 are lost");
}

TEST_F(End, StatusZeroWithoutFinishIsNoSuccess) {
  for (const proto::MemberId id : {0, 1}) reap(id, 0);
  EXPECT_EQ(end()->kind, JobEnd::Kind::kLost);
  EXPECT_EQ(end()->sentence,
            "the program ended without session.finish(), with status 0, in all members of "
            "generation 4");
}

TEST_F(End, FinishedMembersDecideTheStatus) {
  for (const proto::MemberId id : {0, 1}) reap(id, 0, true);
  EXPECT_EQ(end()->kind, JobEnd::Kind::kFinished);
  EXPECT_EQ(end()->exit_code, 0);
  members_.edit(1)->status = 3;
  EXPECT_EQ(end()->exit_code, 3);
}

TEST_F(End, MembersThatLeftOnNoticeAreNotLost) {
  for (const proto::MemberId id : {0, 1}) members_.edit(id)->state = MemberState::kDrained;
  EXPECT_EQ(end()->kind, JobEnd::Kind::kLeftOnNotice);
}

TEST_F(End, AFailedJobEndsWithTheStatusOfTheMemberThatFailedFirst) {
  EXPECT_EQ(job_failure("no member came up", members_, kNow).exit_code, 1);
  reap(1, 3);
  reap(0, 137);
  members_.edit(0)->since = kNow + seconds(1);
  members_.edit(1)->cause = "exited with status 3";
  JobFailure failure = job_failure("all are lost", members_, kNow);
  EXPECT_EQ(failure.exit_code, 3);
  EXPECT_EQ(failure.sentence, "all are lost, first member 1 (exited with status 3)");
  failure = job_failure("all are lost", members_, kNow + seconds(1));
  EXPECT_EQ(failure.exit_code, 137) << "the job has overcome the earlier one";
}

TEST(JobDoneOf, AFailureWhoseMembersHaveTheStateIsSaved) {
  EXPECT_TRUE(job_done(1, "why", StateLeft::kWithMembers).save_state);
  EXPECT_FALSE(job_done(1, "why", StateLeft::kDiverged).save_state);
  EXPECT_FALSE(job_done(0, "finished", StateLeft::kWithMembers).save_state);
  EXPECT_FALSE(job_done(kEndedOnNotice, "left", StateLeft::kWithMembers).save_state);
}

}  // namespace
}  // namespace regroup::membership
