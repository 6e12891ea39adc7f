// When a host counts as lost although its link is open.
#include "membership/coordinator/host_suspicions.h"

#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

using std::chrono::seconds;
using Lost = std::set<proto::NodeId>;

const base::TimePoint kNoon{seconds(1000)};

class Suspicions : public testing::Test {
 protected:
  Suspicions() {
    for (const proto::MemberId id : {4, 5, 6})
      members_.add(id, id, kNoon).state = MemberState::kActive;
  }
  MemberTable members_;  // members 4, 5 and 6 on the nodes of the same number
  HostSuspicions suspicions_;
};

TEST_F(Suspicions, OneObserverIsNotEnough) {
  EXPECT_TRUE(suspicions_.suspect(kNoon, 4, 6));
  EXPECT_EQ(suspicions_.lost(kNoon, members_), Lost{});
  suspicions_.set_silent(5, true);
  EXPECT_TRUE(suspicions_.any_silent());
  EXPECT_EQ(suspicions_.lost(kNoon, members_), Lost{}) << "each observed another host";
}

TEST_F(Suspicions, TwoObserversTogetherAre) {
  suspicions_.set_silent(4, true);
  (void)suspicions_.suspect(kNoon, 4, 6);
  EXPECT_EQ(suspicions_.lost(kNoon + seconds(5), members_), Lost{4});
  EXPECT_EQ(suspicions_.lost(kNoon + seconds(6), members_), Lost{}) << "the report is too old";
}

TEST_F(Suspicions, HeartbeatsThatComeAgainClearAHost) {
  suspicions_.set_silent(4, true);
  (void)suspicions_.suspect(kNoon, 4, 6);
  suspicions_.set_silent(4, false);
  EXPECT_FALSE(suspicions_.is_silent(4));
  EXPECT_EQ(suspicions_.lost(kNoon, members_), Lost{});
}

TEST_F(Suspicions, AHostThatIsSilentItselfIsNotBelieved) {
  suspicions_.set_silent(4, true);
  suspicions_.set_silent(6, true);
  (void)suspicions_.suspect(kNoon, 4, 6);
  EXPECT_EQ(suspicions_.lost(kNoon, members_), Lost{});
  suspicions_.set_silent(6, false);
  EXPECT_EQ(suspicions_.lost(kNoon, members_), Lost{4});
}

TEST_F(Suspicions, AHostThatAnotherReportsIsNotBelievedAlone) {
  suspicions_.set_silent(4, true);
  (void)suspicions_.suspect(kNoon, 6, 5);
  (void)suspicions_.suspect(kNoon, 4, 6);
  EXPECT_EQ(suspicions_.lost(kNoon, members_), Lost{}) << "node 6 loses packets, node 4 is slow";
  (void)suspicions_.suspect(kNoon, 4, 5);
  EXPECT_EQ(suspicions_.lost(kNoon, members_), Lost{4}) << "node 5 says so, too";
}

TEST_F(Suspicions, WhatASilentHostSaysAboutItsObserversDoesNotSaveIt) {
  suspicions_.set_silent(4, true);
  (void)suspicions_.suspect(kNoon, 6, 4);
  (void)suspicions_.suspect(kNoon, 4, 6);
  EXPECT_EQ(suspicions_.lost(kNoon, members_), Lost{4});
}

TEST_F(Suspicions, ReportsOfAHostThatWasGivenUpAreForgotten) {
  suspicions_.set_silent(4, true);
  (void)suspicions_.suspect(kNoon, 4, 6);
  suspicions_.forget(6);
  EXPECT_EQ(suspicions_.lost(kNoon, members_), Lost{});
}

TEST_F(Suspicions, AMemberThatIsOutOfTheWorldCountsNoMore) {
  suspicions_.set_silent(4, true);
  (void)suspicions_.suspect(kNoon, 4, 6);
  members_.edit(4)->state = MemberState::kLost;
  EXPECT_EQ(suspicions_.lost(kNoon, members_), Lost{});
}

TEST_F(Suspicions, ASuspicionIsNewOnceTheLastOneIsOld) {
  EXPECT_TRUE(suspicions_.suspect(kNoon, 4, 6));
  EXPECT_FALSE(suspicions_.suspect(kNoon + seconds(4), 4, 6));
  EXPECT_FALSE(suspicions_.suspect(kNoon + seconds(9), 4, 6));
  EXPECT_TRUE(suspicions_.suspect(kNoon + seconds(15), 4, 6));
}

}  // namespace
}  // namespace regroup::membership
