// When a training on several hosts counts as complete, and whose loss then costs a checkpoint.
#include "launcher/job/finished_watch.h"
#include "base/status.h"

#include <gtest/gtest.h>

namespace regroup::job {
namespace {

constexpr proto::NodeId kA = 1, kB = 2;

proto::Announce world() {
  return proto::Announce(proto::World{
      .generation = 1, .members = {{.id = 0, .slot_id = {kA, 0}}, {.id = 1, .slot_id = {kB, 0}}}});
}
proto::Report report(bool finished) { return {0, {{.member = 0, .finished = finished}}}; }

TEST(TrainingEnd, IsTheFirstMembersThatHasFinished) {
  TrainingEnd end;
  end.hear(world(), false);
  end.hear(report(false), false);
  end.hear(proto::MemberLost{.member = 1, .joined = true, .exit_code = 3, .reaped = true}, false);
  EXPECT_FALSE(end.status());
  end.hear(report(true), false);
  EXPECT_EQ(end.status(), 0);
}

TEST(TrainingEnd, HasTheStatusOfAMemberThatFailsAfterItUnlessTheJobIsBeingEnded) {
  for (const bool ending : {false, true}) {
    TrainingEnd end;
    end.hear(
        proto::MemberLost{
            .member = 1, .joined = true, .finished = true, .exit_code = 3, .reaped = true},
        ending);
    EXPECT_EQ(end.status(), ending ? 0 : 3);
  }
}

TEST(TrainingEnd, AHostThatIsLostThenMayHaveBeenAboutToWrite) {
  for (const proto::NodeId lost : {kA, kB}) {
    TrainingEnd end;
    end.hear(world(), false);
    end.lose(lost, "node", base::peer_lost("gone"));
    EXPECT_EQ(end.unsaved, "");  // the others go on
    end.hear(report(true), false);
    end.lose(lost, "node", base::peer_lost("gone"));
    EXPECT_EQ(end.unsaved.empty(), lost != kA) << end.unsaved;
  }
}

}  // namespace
}  // namespace regroup::job
