// A member stands still while the others wait for it: it is named, and replaced or dropped where
// the user wants that.
#include "tests/membership/job_fixture.h"

namespace regroup::membership {
namespace {

using namespace std::chrono_literals;

class HungTest : public JobTest {
 protected:
  static SimOptions watched(base::Duration after = 5s) {
    SimOptions o;
    o.policy.hang_timeout = after;
    return o;
  }
  // Once it is known how long steps are.
  SimJob& start_and_hang(SimOptions options) {
    options.steps = 2000;
    SimJob& job = job_.emplace(std::move(options));
    EXPECT_TRUE(job.steady(1, job.options.policy.target));
    const base::TimePoint begin = job.now;
    EXPECT_TRUE(job.run_until([&] { return job.now > begin + 6s; }));
    EXPECT_FALSE(job.end);
    job.member(1).hangs = true;
    return job;
  }
};

constexpr const char* kKeeps = "member 1 keeps 2 others waiting for 5 s";

TEST_F(HungTest, IsNamedOnceAndTheJobGoesOnWhenItDoes) {
  SimJob& job = start_and_hang(watched());
  ASSERT_TRUE(job.run_until([&] { return job.heard(kKeeps); }));
  EXPECT_FALSE(job.heard("--on-hang"));
  const base::TimePoint said = job.now;
  ASSERT_TRUE(job.run_until([&] { return job.now > said + 30s; }));
  EXPECT_EQ(std::ranges::count_if(
                job.says, [](const auto& s) { return s.find("keeps") != std::string::npos; }),
            1);
  EXPECT_EQ(job.generation(), 1U);
  EXPECT_NE(job.coordinator->status_json(job.now).find(kKeeps), std::string::npos);
  job.member(1).hangs = false;
  expect_success(job);
}

TEST_F(HungTest, IsReplacedWhereTheUserWantsThat) {
  SimOptions o = watched();
  o.policy.on_hang = proto::OnHang::kReplace;
  SimJob& job = start_and_hang(o);
  expect_success(job);
  EXPECT_TRUE(job.heard(kKeeps));
  EXPECT_TRUE(job.heard("; killed (--on-hang)"));
  EXPECT_TRUE(job.heard("member 1 was lost (hung)"));
  EXPECT_FALSE(job.member(1).alive);
  EXPECT_EQ(job.journal->size(), 3U);
}

// It may compile its first step, or load its data; but not for so much longer than the members that
// wait for it.
TEST_F(HungTest, InItsFirstStepItIsReplacedLater) {
  SimOptions o = watched();
  o.policy.on_hang = proto::OnHang::kReplace;
  o.steps = 2000;
  SimJob& job = job_.emplace(std::move(o));
  ASSERT_TRUE(job.steady(1, job.options.policy.target));
  ASSERT_TRUE(job.run_until([&] { return job.member(1).applied >= 1; }));
  job.member(1).hangs = true;
  ASSERT_TRUE(job.run_until([&] { return job.heard("keeps 2 others waiting"); }));
  EXPECT_TRUE(job.heard("; not killed (--on-hang): it has not taken two steps yet"));
  EXPECT_TRUE(job.member(1).alive);
  expect_success(job);
  EXPECT_TRUE(job.heard("waiting for 25 s"));
  EXPECT_TRUE(job.heard("; killed (--on-hang)"));
  EXPECT_FALSE(job.member(1).alive);
  EXPECT_EQ(job.journal->size(), 3U);
}

TEST_F(HungTest, IsDroppedWhereTheUserWantsThat) {
  SimOptions o = watched();
  o.policy.on_hang = proto::OnHang::kDrop;
  SimJob& job = start_and_hang(o);
  expect_success(job);
  EXPECT_TRUE(job.heard("member 1 was lost (hung)"));
  EXPECT_EQ(job.journal->size(), 2U);
  EXPECT_FALSE(job.members.contains(3));
}

TEST_F(HungTest, IsReplacedAllTheSameWhereFewerWouldBeTooFew) {
  SimOptions o = watched();
  o.policy.on_hang = proto::OnHang::kDrop;
  o.policy.min = 3;
  SimJob& job = start_and_hang(o);
  expect_success(job);
  EXPECT_EQ(job.journal->size(), 3U);
}

TEST_F(HungTest, IsNotSoughtWhereTheUserDoesNotWantThat) {
  SimOptions o = watched(0s);
  o.policy.on_hang = proto::OnHang::kReplace;
  SimJob& job = start_and_hang(o);
  const base::TimePoint begin = job.now;
  ASSERT_TRUE(job.run_until([&] { return job.now > begin + 120s; }));
  EXPECT_FALSE(job.heard("keeps"));
  EXPECT_TRUE(job.member(1).alive);
}

// It was stopped itself, and so saw nobody get on.
TEST_F(HungTest, IsNotWhoACoordinatorThatWasStoppedHasNotSeen) {
  SimJob& job = start(watched());
  ASSERT_TRUE(job.reach(10));
  job.pass(100s);
  expect_success(job);
  EXPECT_FALSE(job.heard("keeps"));
}

}  // namespace
}  // namespace regroup::membership
