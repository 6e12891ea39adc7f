// How large a job on several hosts is: what was said, what is leased, what is gone for now or for
// good.
#include <gmock/gmock.h>

#include "tests/membership/hosts_fixture.h"

namespace regroup::membership {
namespace {

using testing::ElementsAre;

TEST_F(HostsTest, WhoseSizeNobodySaidGrowsWithItsHosts) {
  SimOptions o = three_hosts();
  o.policy.target = 0;
  job_.emplace(o);
  SimJob& job = *job_;
  ASSERT_TRUE(job.steady(1, 6));
  job.resize_host(2, 0);
  ASSERT_TRUE(job.steady(2, 4));
  (void)job.add_host(2);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 6; }));
  EXPECT_THAT(nodes(*job.journal), ElementsAre(0, 0, 1, 1, 3, 3));
  expect_success(job);
}

// A host that is lent to a job of a given size is used: the job is larger as long as it has the
// host.
TEST_F(HostsTest, WhatAUserLendsComesBeyondTheSizeThatWasSaid) {
  SimOptions o = three_hosts();
  o.policy.max = 8;
  SimJob& job = start_on(o, 6);
  ASSERT_TRUE(job.ask(proto::ResizeRequest{4}).ok);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 4; }));
  const proto::NodeId leased = job.add_host(2, true);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 6; }));
  job.resize_host(leased, 0);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 4; }));
  job.lose_host(leased);
  EXPECT_FALSE(job.heard("was lost"));
  (void)job.add_host(8, true);  // no more than MAX
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 8; }));
  expect_success(job);
}

TEST_F(HostsTest, WhatAUserLendsFillsWhatTheJobLacksFirst) {
  SimOptions o = three_hosts();
  o.policy.max = 8;
  o.policy.grows = true;
  SimJob& job = start_on(o, 6);
  ASSERT_TRUE(job.ask(proto::ResizeRequest{7}).ok);
  (void)job.add_host(2, true);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 8; }));
  ASSERT_TRUE(job.ask(proto::ResizeRequest{7}).ok);  // the last word, whatever is leased
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 7; }));
  expect_success(job);
}

TEST_F(HostsTest, ALentHostThatIsLostTakesItsPlacesWithIt) {
  SimOptions o = three_hosts();
  o.policy.max = 8;
  SimJob& job = start_on(o, 6);
  ASSERT_TRUE(job.ask(proto::ResizeRequest{4}).ok);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 4; }));
  const proto::NodeId leased = job.add_host(2, true);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 6; }));
  job.lose_host(leased);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 4; }));
  (void)job.add_host(2, true);  // it has come again
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 6; }));
  expect_success(job);
}

TEST_F(HostsTest, AHostThatIsSuspendedKeepsItsPlacesInTheJob) {
  SimJob& job = start_on(three_hosts(), 6);
  ASSERT_TRUE(job.ask(proto::ResizeRequest{6}).ok);  // its size is said
  job.resize_host(1, 0, true);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 4; }));
  EXPECT_FALSE(job.heard("was lost"));
  job.resize_host(1, 2);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 6; }));
  expect_success(job);
}

// Part of a host, which its allocator wants back: whether it gets it is known once members have
// left.
TEST_F(HostsTest, SlotsThatAreGoneForNowMakeTheJobSmallerOnceTheyAreGoneForGood) {
  SimJob& job = start_on(three_hosts(), 6);
  ASSERT_TRUE(job.ask(proto::ResizeRequest{6}).ok);
  job.resize_host(1, 1, true);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 5; }));
  EXPECT_EQ(job.past.intent->target, 6U);
  job.resize_host(1, 2);  // they stay
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 6; }));
  job.resize_host(1, 1, true);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 5; }));
  job.resize_host(1, 1);
  EXPECT_EQ(job.past.intent->target, 5U);
  (void)job.add_host(2);  // by which the job is no larger
  ASSERT_TRUE(job.reach(job.member(0).applied + 5));
  EXPECT_EQ(job.journal->size(), 5U);
  EXPECT_FALSE(job.heard("was lost"));
  expect_success(job);
}

TEST_F(HostsTest, WhatIsGoneForGoodCostsNoMemberThatHasRoomElsewhere) {
  SimOptions o = three_hosts();
  o.policy.max = 8;
  SimJob& job = start_on(o, 6);
  ASSERT_TRUE(job.ask(proto::ResizeRequest{6}).ok);
  job.resize_host(1, 1, true);
  job.resize_host(2, 0, true);  // suspended
  (void)job.add_host(1);
  job.resize_host(1, 1);  // of three places that are missing one has come, and one is gone
  EXPECT_EQ(job.past.intent->target, 5U);
  job.resize_host(2, 2);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 5; }));
  job.resize_host(1, 0, true);
  ASSERT_TRUE(job.run_until([&] { return job.living_on(1) == 0; }));
  job.resize_host(1, 0);  // whose places the others have
  EXPECT_EQ(job.past.intent->target, 5U);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 5; }));
  expect_success(job);
}

TEST_F(HostsTest, ASizeThatIsSaidMeanwhileIsTheLastWord) {
  SimOptions o = three_hosts();
  o.policy.max = 8;
  o.policy.grows = true;
  SimJob& job = start_on(o, 6);
  job.resize_host(1, 1, true);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 5; }));
  ASSERT_TRUE(job.ask(proto::ResizeRequest{7}).ok);
  job.resize_host(1, 1);
  EXPECT_EQ(job.past.intent->target, 7U);
  (void)job.add_host(2);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 7; }));
  expect_success(job);
}

TEST_F(HostsTest, ALaterCoordinatorKnowsThatTheSizeWasSaid) {
  SimOptions o = three_hosts();
  o.policy.max = 8;
  SimJob& job = start_on(o, 6);
  ASSERT_TRUE(job.ask(proto::ResizeRequest{4}).ok);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 4; }));
  job.restart_coordinator(true);
  ASSERT_TRUE(job.reach(job.member(0).applied + 2));
  (void)job.add_host(2);
  ASSERT_TRUE(job.reach(job.member(0).applied + 5));
  EXPECT_EQ(job.journal->size(), 4U);
  expect_success(job);
}

TEST_F(HostsTest, OrThatNobodyHasSaidIt) {
  SimOptions o = three_hosts();
  o.policy.max = 8;
  SimJob& job = start_on(o, 6);
  job.restart_coordinator(true);
  ASSERT_TRUE(job.reach(job.member(0).applied + 2));
  (void)job.add_host(2);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 8; }));
  expect_success(job);
}

TEST_F(HostsTest, WhatWasLentGoesWithItsHostUnderALaterCoordinatorToo) {
  SimOptions o = three_hosts();
  o.policy.max = 8;
  SimJob& job = start_on(o, 6);
  ASSERT_TRUE(job.ask(proto::ResizeRequest{4}).ok);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 4; }));
  const proto::NodeId leased = job.add_host(2, true);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 6; }));
  for (int restarts = 0; restarts < 2; ++restarts) {
    job.restart_coordinator(true);
    ASSERT_TRUE(job.reach(job.member(0).applied + 2));
  }
  job.resize_host(leased, 0);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 4; }));
  EXPECT_EQ(job.past.intent->said, 4U);
  expect_success(job);
}

}  // namespace
}  // namespace regroup::membership
