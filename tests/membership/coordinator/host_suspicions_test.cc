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
    for (const proto::MemberId id : {4, 5})
      members_.add(id, id, kNoon).state = MemberState::kActive;
  }
  MemberTable members_;  // members 4 and 5 on nodes 4 and 5
  HostSuspicions suspicions_;
};

TEST_F(Suspicions, OneObserverIsNotEnough) {
  EXPECT_TRUE(suspicions_.suspect(kNoon, 4));
  EXPECT_EQ(suspicions_.lost(kNoon, members_), Lost{});
  suspicions_.set_silent(5, true);
  EXPECT_TRUE(suspicions_.any_silent());
  EXPECT_EQ(suspicions_.lost(kNoon, members_), Lost{}) << "each observed another host";
}

TEST_F(Suspicions, TwoObserversTogetherAre) {
  suspicions_.set_silent(4, true);
  (void)suspicions_.suspect(kNoon, 4);
  EXPECT_EQ(suspicions_.lost(kNoon + seconds(5), members_), Lost{4});
  EXPECT_EQ(suspicions_.lost(kNoon + seconds(6), members_), Lost{}) << "the report is too old";
}

TEST_F(Suspicions, HeartbeatsThatComeAgainClearAHost) {
  suspicions_.set_silent(4, true);
  (void)suspicions_.suspect(kNoon, 4);
  suspicions_.set_silent(4, false);
  EXPECT_FALSE(suspicions_.is_silent(4));
  EXPECT_EQ(suspicions_.lost(kNoon, members_), Lost{});
}

TEST_F(Suspicions, AMemberThatIsOutOfTheWorldCountsNoMore) {
  suspicions_.set_silent(4, true);
  (void)suspicions_.suspect(kNoon, 4);
  members_.edit(4)->state = MemberState::kLost;
  EXPECT_EQ(suspicions_.lost(kNoon, members_), Lost{});
}

TEST_F(Suspicions, ASuspicionIsNewOnceTheLastOneIsOld) {
  EXPECT_TRUE(suspicions_.suspect(kNoon, 4));
  EXPECT_FALSE(suspicions_.suspect(kNoon + seconds(4), 4));
  EXPECT_FALSE(suspicions_.suspect(kNoon + seconds(9), 4));
  EXPECT_TRUE(suspicions_.suspect(kNoon + seconds(15), 4));
}

}  // namespace
}  // namespace regroup::membership
