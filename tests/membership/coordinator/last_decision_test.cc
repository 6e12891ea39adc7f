// When a decision about the next World would only repeat the last one.
#include "membership/coordinator/last_decision.h"

#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

using std::chrono::milliseconds;

TEST(LastDecision, RepeatsWhileNeitherMembersNorTargetChange) {
  constexpr base::TimePoint start{std::chrono::seconds(1000)};
  LastDecision decision;
  EXPECT_FALSE(decision.repeats(start, 5, 2)) << "none was made";
  EXPECT_TRUE(decision.repeats(start, 5, 2));
  EXPECT_FALSE(decision.repeats(start, 6, 2)) << "a member has changed";
  EXPECT_FALSE(decision.repeats(start, 6, 3)) << "the target has changed";
  EXPECT_TRUE(decision.repeats(start + milliseconds(999), 6, 3));
  EXPECT_FALSE(decision.repeats(start + milliseconds(1000), 6, 3)) << "for its sentence";
  EXPECT_TRUE(decision.repeats(start + milliseconds(1999), 6, 3)) << "a second after that one";
  decision.forget();
  EXPECT_FALSE(decision.repeats(start + milliseconds(1999), 6, 3)) << "another regroup";
}

}  // namespace
}  // namespace regroup::membership
