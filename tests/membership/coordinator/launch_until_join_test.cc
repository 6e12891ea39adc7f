// The launches of a job whose members have not joined.
#include "membership/coordinator/launch_until_join.h"

#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

using std::chrono::seconds;
using Then = LaunchUntilJoin::Then;

const base::TimePoint kLaunched{seconds(1000)};

class LaunchTest : public testing::Test {
 protected:
  void begin(std::uint32_t most = 3) {
    const proto::MemberId first = members_.next_id();
    const std::uint32_t size = launch_.begin(kLaunched, most, first);
    for (std::uint32_t rank = 0; rank < size; ++rank)
      members_.add(first + rank, 0, kLaunched).first_rank = rank;
  }
  LaunchUntilJoin::Verdict end(proto::MemberId id, std::int32_t status, const char* kind = "") {
    MemberInfo& r = *members_.edit(id);
    r.state = MemberState::kGone;
    r.status = status;
    r.failure.kind = kind;
    r.failure.message = kind;
    return launch_.on_end(kLaunched, r, "exited with status 1", members_);
  }
  LaunchUntilJoin launch_{{.max_restarts = 2}, 2, 3};
  MemberTable members_;
};

TEST_F(LaunchTest, BeginsWithoutOne) {
  EXPECT_FALSE(launch_.made());
  begin(2);
  EXPECT_TRUE(launch_.made());
  EXPECT_EQ(members_.all().size(), 2U);
  EXPECT_FALSE(launch_.joined());
  EXPECT_TRUE(launch_.join(kLaunched));
  EXPECT_FALSE(launch_.join(kLaunched + seconds(1)));
  EXPECT_EQ(launch_.joined_at(), kLaunched);
}

TEST_F(LaunchTest, AFailureRepeatsTheWholeLaunch) {
  begin();
  const auto verdict = end(1, 1);
  EXPECT_EQ(verdict.then, Then::kRelaunch);
  EXPECT_GE(launch_.due(), kLaunched);
  EXPECT_EQ(launch_.restarts(), 0U);
  begin();
  EXPECT_EQ(launch_.restarts(), 1U);
  EXPECT_EQ(launch_.first_member(), 3U);
}

TEST_F(LaunchTest, ThreeOfTheSameFailureEndTheJob) {
  for (proto::MemberId first : {0, 3}) {
    begin();
    EXPECT_EQ(end(first, 1, "ValueError").then, Then::kRelaunch);
  }
  begin();
  const auto verdict = end(members_.next_id() - 1, 1, "ValueError");
  EXPECT_EQ(verdict.then, Then::kEndJob);
  EXPECT_NE(verdict.exit_code, 0);
}

TEST_F(LaunchTest, SuccessEndsTheJobWithTheLastMember) {
  begin();
  EXPECT_EQ(end(0, 0).then, Then::kNothing);
  EXPECT_EQ(end(1, 0).then, Then::kNothing);
  const auto verdict = end(2, 0);
  EXPECT_EQ(verdict.then, Then::kEndJob);
  EXPECT_EQ(verdict.exit_code, 0);
}

TEST_F(LaunchTest, ARefusedMemberIsGivenUpUnlessAllAre) {
  begin();
  EXPECT_EQ(end(0, 1, proto::kRefusedKind).then, Then::kShrink);
  EXPECT_EQ(end(1, 1, proto::kRefusedKind).then, Then::kShrink);
  const auto verdict = end(2, 1, proto::kRefusedKind);
  EXPECT_EQ(verdict.then, Then::kEndJob);
  EXPECT_EQ(verdict.sentence, "every member was refused: " + std::string(proto::kRefusedKind));
}

}  // namespace
}  // namespace regroup::membership
