// What a World starts from: the seed and the shards of the command line, unless a checkpoint has
// others.
#include "launcher/job/checkpoint_start.h"

#include <gtest/gtest.h>

namespace regroup::job {
namespace {

TEST(WorldStart, WithoutCheckpointsIsWhatTheCommandLineSays) {
  spec::JobSpec spec;
  spec.seed = 7;
  process::HeldLocks locks;
  const auto world = prepare_checkpoints(spec, /*shards=*/8, "0a1b2c3d", false, &locks);
  ASSERT_TRUE(world.ok()) << world.status().message();
  EXPECT_EQ(world->seed, 7U);
  EXPECT_EQ(world->shards, 8U);
  EXPECT_EQ(world->checkpoints, writer::CheckpointPlan());
}

TEST(WorldStart, ASharedDirectoryNeedsAFirstOne) {
  spec::JobSpec spec;
  spec.checkpoint.shared = "/shared";
  process::HeldLocks locks;
  EXPECT_EQ(prepare_checkpoints(spec, 8, "0a1b2c3d", false, &locks).status().message(),
            "--checkpoint-shared: requires --checkpoint DIR");
}

}  // namespace
}  // namespace regroup::job
