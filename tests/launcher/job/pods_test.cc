// What `kubectl get pods` prints of the pods of an Indexed Job.
#include "launcher/job/pods.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup::job {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Pods, TheLaunchingPodEndsOnceNoneOfItsKindRuns) {
  EXPECT_EQ(status_of_phases(""), std::nullopt);
  EXPECT_EQ(status_of_phases("Pending\n"), std::nullopt);
  EXPECT_EQ(status_of_phases("Running\n"), std::nullopt);
  EXPECT_EQ(status_of_phases("Succeeded\n"), 0);
  EXPECT_EQ(status_of_phases("Failed\n"), 1);
  EXPECT_EQ(status_of_phases("Failed\nFailed\n"), 1);
  EXPECT_EQ(status_of_phases("Failed\nRunning\n"), std::nullopt);
  EXPECT_EQ(status_of_phases("Failed\nSucceeded\n"), 0);
}

TEST(Pods, ThoseThatDoNotRunAreAbsent) {
  EXPECT_THAT(absent_pods({"train-1", "train-2", "train-11"},
                          "pod/train-0-abcde\npod/train-11-fghij\npod/train-2-klmno\n"),
              ElementsAre("train-1"));
  EXPECT_THAT(absent_pods({"train-1"}, ""), ElementsAre("train-1"));
  EXPECT_THAT(absent_pods({}, "x"), IsEmpty());
}

}  // namespace
}  // namespace regroup::job
