// What became of what an allocator was asked for.
#include "launcher/job/requests.h"

#include <gtest/gtest.h>

namespace regroup::job {
namespace {

using Many = std::vector<Requests::Request>;

TEST(Requests, WhatHasComeIsExpectedNoMore) {
  Requests requests;
  requests.asked("7", 4);
  requests.asked("9", 2);
  EXPECT_EQ(requests.slots(), 6U);
  EXPECT_TRUE(requests.has("7"));
  EXPECT_FALSE(requests.has(""));
  EXPECT_TRUE(requests.arrived("7"));
  EXPECT_FALSE(requests.has("7"));
  EXPECT_EQ(requests.slots(), 2U);
  EXPECT_TRUE(requests.arrived("8"));  // a user's own
  EXPECT_TRUE(requests.arrived(""));
  EXPECT_EQ(requests.slots(), 2U);
}

TEST(Requests, TheNewestThatAreTooMuchAreCancelledAsAWhole) {
  Requests requests;
  requests.asked("1", 2);
  requests.asked("2", 4);
  requests.asked("3", 1);
  EXPECT_EQ(requests.surplus(7), Many());
  EXPECT_EQ(requests.surplus(5), (Many{{"3", 1}, {"2", 4}}));
  EXPECT_EQ(requests.slots(), 2U);
  EXPECT_FALSE(requests.arrived("2"));  // it ran before it was cancelled
  EXPECT_TRUE(requests.arrived("2"));
  EXPECT_TRUE(requests.arrived("1"));
}

TEST(Requests, WhatTheAllocatorDoesNotKnowIsForgotten) {
  Requests requests;
  requests.asked("1", 2);
  requests.asked("2", 4);
  requests.keep({"2", "5"});
  EXPECT_EQ(requests.slots(), 4U);
  requests.keep({});
  EXPECT_EQ(requests.slots(), 0U);
}

TEST(Requests, SlotsThatNameNoRequestAreThoseOfTheOldest) {
  Requests requests;
  requests.asked("", 2);
  requests.asked("", 4);
  requests.grown(3);
  EXPECT_EQ(requests.slots(), 3U);
  requests.grown(9);
  EXPECT_EQ(requests.slots(), 0U);
  EXPECT_EQ(requests.surplus(0), Many());
}

}  // namespace
}  // namespace regroup::job
