// How many members a job is to have, as users, losses and hosts change it.
#include "membership/coordinator/job_size.h"

#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

Policy policy(std::uint32_t target, bool replace = true) {
  return {.min = 2, .max = 8, .target = target, .slots = 4, .replace = replace};
}

TEST(JobSize, ALostMemberCountsUnlessItIsReplaced) {
  JobSize replaced(policy(4));
  EXPECT_FALSE(replaced.lose_one());
  EXPECT_EQ(replaced.desired(), 4U);
  JobSize size(policy(4, false));
  EXPECT_TRUE(size.lose_one());
  EXPECT_EQ(size.desired(), 3U);
  EXPECT_EQ(size.target(), 4U) << "what the user asked for";
  EXPECT_FALSE(size.refill());
}

TEST(JobSize, ANoticeLowersTheTargetToTheMinimum) {
  JobSize size(policy(3));
  for (int i = 0; i < 3; ++i) size.leave_one();
  EXPECT_EQ(size.target(), 2U);
  JobSize never_replaced(policy(3, false));
  for (int i = 0; i < 3; ++i) never_replaced.leave_one();
  EXPECT_EQ(never_replaced.desired(), 1U);
  for (int i = 0; i < 3; ++i) never_replaced.drop_one();
  EXPECT_EQ(never_replaced.desired(), 2U) << "a hung member is not dropped below the minimum";
}

TEST(JobSize, ASmallLaunchIsFilledUp) {
  JobSize size(policy(4));
  size.launch(2);
  EXPECT_FALSE(size.is_journaled());
  EXPECT_TRUE(size.refill());
  EXPECT_EQ(size.desired(), 4U);
  size.journaled();
  EXPECT_TRUE(size.is_journaled());
}

TEST(JobSize, WithoutARequestTheHostsDecide) {
  JobSize size(policy(0));
  size.set_slots(5);
  EXPECT_TRUE(size.fit_to_capacity());
  EXPECT_EQ(size.target(), 5U);
  EXPECT_EQ(size.requested(), 0U);
  size.set_slots(9);
  EXPECT_TRUE(size.grow(0));
  EXPECT_EQ(size.target(), 8U);
  size.request(3);
  EXPECT_FALSE(size.grow(0)) << "the user has said a size";
  EXPECT_EQ(size.requested(), 3U);
}

TEST(JobSize, LeasedSlotsMakeTheJobLargerWhileTheHostIsThere) {
  JobSize size(policy(4));
  const std::uint32_t lacked = size.lacked();
  size.set_slots(7);
  const std::uint32_t leased = size.lease(1, 3, lacked);
  EXPECT_EQ(leased, 3U);
  EXPECT_TRUE(size.grow(leased));
  EXPECT_EQ(size.target(), 7U);
  EXPECT_EQ(size.requested(), 4U);
  size.set_slots(4);
  EXPECT_TRUE(size.lose_host(1));
  EXPECT_EQ(size.target(), 4U);
  EXPECT_FALSE(size.lose_host(1));
}

TEST(JobSize, LeasedSlotsFirstFillWhatIsLacking) {
  JobSize size(policy(6));
  const std::uint32_t lacked = size.lacked();
  EXPECT_EQ(lacked, 2U);
  size.set_slots(7);
  EXPECT_EQ(size.lease(1, 3, lacked), 1U);
}

TEST(JobSize, ARestoredLeaseEndsWithItsHost) {
  JobSize size(policy(4));
  size.restore({.target = 7, .desired = 7, .said = 4});
  EXPECT_TRUE(size.is_journaled());
  EXPECT_EQ(size.requested(), 4U);
  size.restore_lease(1, 3);
  size.set_slots(4);
  EXPECT_EQ(size.end_lease(1), 4U);
  size.shrink_to(4, false);
  EXPECT_EQ(size.requested(), 4U);
}

TEST(JobSize, SlotsThatAreMissingForNowCountOnceTheyDoNotReturn) {
  JobSize size(policy(4));
  size.set_slots(2);
  EXPECT_FALSE(size.settle_missing(1, 4, 2, true));
  EXPECT_EQ(size.desired(), 4U);
  EXPECT_TRUE(size.settle_missing(1, 2, 2, false));
  EXPECT_EQ(size.desired(), 2U);
}

TEST(JobSize, MissingSlotsThatReturnTakeNothing) {
  JobSize size(policy(4));
  size.set_slots(2);
  EXPECT_FALSE(size.settle_missing(1, 4, 2, true));
  size.set_slots(4);
  EXPECT_FALSE(size.settle_missing(1, 2, 4, false));
  EXPECT_EQ(size.desired(), 4U);
}

TEST(JobSize, OversubscribedHostsTakeTheLargestJob) {
  Policy p = policy(4);
  p.oversubscribe = true;
  p.spares = 1;
  JobSize size(p);
  size.set_slots(1);
  EXPECT_EQ(size.capacity(), 9U);
  EXPECT_EQ(size.lease(1, 3, 0), 0U);
  size.take_capacity();
  EXPECT_EQ(size.capacity(), 0U);
}

}  // namespace
}  // namespace regroup::membership
