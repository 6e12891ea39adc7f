// The coordinator's options of a job on one host and of one on several: what they share, and where
// they differ.
#include "launcher/job/coordinator_options.h"

#include <gtest/gtest.h>

namespace regroup::job {
namespace {

const JobFiles kFiles{"/run/regroup/0a1b2c3d"};

spec::JobSpec elastic() {
  spec::JobSpec spec;
  spec.elastic = true;
  spec.min = 2;
  spec.max = 6;
  spec.spares = 1;
  spec.hang = {std::chrono::seconds(9), proto::OnHang::kReplace};
  spec.quiet = true;
  return spec;
}

const Members kMembers{.min = 2, .max = 6, .start = 3};
const WorldStart kWorld{{}, /*seed=*/7, /*shards=*/8};

TEST(CoordinatorOptions, HaveWhatTheCommandLineAsksFor) {
  for (const auto& slots : {std::optional<std::uint32_t>(4), std::optional<std::uint32_t>()}) {
    const CoordinatorOptions got = coordinator_options(elastic(), kMembers, kWorld, kFiles, slots);
    EXPECT_EQ(got.policy.min, 2U);
    EXPECT_EQ(got.policy.max, 6U);
    EXPECT_EQ(got.policy.spares, 1U);
    EXPECT_EQ(got.policy.shards, 8U);
    EXPECT_EQ(got.policy.hang_timeout, std::chrono::seconds(9));
    EXPECT_EQ(got.policy.on_hang, proto::OnHang::kReplace);
    EXPECT_EQ(got.job.id, "0a1b2c3d");
    EXPECT_EQ(got.job.seed, 7U);
    EXPECT_EQ(got.files.folder, kFiles.folder);
    EXPECT_TRUE(got.quiet);
    EXPECT_EQ(got.policy.resume, 0U);
  }
}

TEST(CoordinatorOptions, OfOneHostNameItsSlots) {
  spec::JobSpec spec = elastic();
  CoordinatorOptions got = coordinator_options(spec, kMembers, kWorld, kFiles, 4);
  EXPECT_EQ(got.policy.slots, 4U);
  EXPECT_EQ(got.policy.target, 3U);
  EXPECT_EQ(got.job.nodes, std::vector<proto::NodeId>{0});
  spec.oversubscribe = true;
  got = coordinator_options(spec, kMembers, kWorld, kFiles, 4);
  EXPECT_EQ(got.policy.slots, 7U);  // all members and spares
  EXPECT_FALSE(got.policy.oversubscribe);
}

TEST(CoordinatorOptions, OfSeveralHostsLeaveSlotsToTheHosts) {
  spec::JobSpec spec = elastic();
  spec.oversubscribe = true;
  spec.mapping.map.kind = spec::MapBy::Kind::kUnit;
  spec.mapping.map.unit = spec::Unit::kNode;
  const CoordinatorOptions got = coordinator_options(spec, kMembers, kWorld, kFiles, std::nullopt);
  EXPECT_EQ(got.policy.target, 0U);
  EXPECT_TRUE(got.job.nodes.empty());
  EXPECT_TRUE(got.policy.oversubscribe);
  EXPECT_TRUE(got.policy.by_node);
  EXPECT_FALSE(got.policy.grows);  // no allocator granted the hosts
}

TEST(CoordinatorOptions, ResumeFromTheCheckpointAndHeedMaxRestarts) {
  spec::JobSpec spec = elastic();
  spec.max_restarts = 5;
  WorldStart world = kWorld;
  world.checkpoints.resume = spec::Resume{.path = "/c/42", .step = 42};
  const CoordinatorOptions got = coordinator_options(spec, kMembers, world, kFiles, 4);
  EXPECT_EQ(got.policy.resume, 42U);
  EXPECT_EQ(got.policy.relaunch.max_restarts, 5U);
}

}  // namespace
}  // namespace regroup::job
