// What agents get from the one setup that all hosts of a job share.
#include "launcher/job/elastic_agent_options.h"

#include <gtest/gtest.h>

#include "proto/canonical.h"

namespace regroup::job {
namespace {

WorldStart world_start() {
  WorldStart out{{}, /*seed=*/7, /*shards=*/8};
  out.checkpoints.every = 5;
  out.checkpoints.memory = 1 << 20;
  out.checkpoints.resume = spec::Resume{.path = "/c/42", .step = 42, .fingerprint = "avx2"};
  return out;
}

TEST(ElasticAgentOptions, HaveAllOfTheSetup) {
  spec::JobSpec spec;
  spec.elastic = true;
  spec.any_fingerprint = true;
  spec.learner_steps = 3;
  spec.learner_state = 99;
  spec.leaf_buffers = 2;
  spec.hang.timeout = std::chrono::seconds(9);
  agent::ElasticSetup setup = elastic_setup(spec, 4, world_start());
  setup.slots = {{{0, 1}, {{"A", "1"}}}, {{2}, {}}};
  const ElasticAgentOptions got = elastic_agent_options(setup);
  EXPECT_EQ(got.core.slots, 4U);
  EXPECT_EQ(got.core.shards, 8U);
  EXPECT_EQ(got.core.seed, 7U);
  EXPECT_TRUE(got.core.any_fingerprint);
  EXPECT_EQ(got.core.kept_results, 3U);
  EXPECT_EQ(got.core.learn_above, 99U);
  EXPECT_EQ(got.core.leaf_buffers, 2U);
  EXPECT_TRUE(got.core.checkpoints);
  EXPECT_EQ(got.core.checkpoint_memory, 1U << 20);
  EXPECT_EQ(got.core.resumed_fingerprint, "avx2");
  EXPECT_EQ(got.checkpoints.resume->step, 42U);
  EXPECT_EQ(got.finished_limit, std::chrono::seconds(9));
  EXPECT_EQ(got.cores, (std::vector<std::vector<int>>{{0, 1}, {2}}));
  EXPECT_EQ(got.environments, (std::vector<spec::Environment>{{{"A", "1"}}, {}}));
}

TEST(ElasticAgentOptions, KeepNoResultsForLearnersInAWorldOfFixedSize) {
  const spec::JobSpec spec;
  const ElasticAgentOptions got = elastic_agent_options(elastic_setup(spec, 1, {}));
  EXPECT_EQ(got.core.kept_results, 0U);
  EXPECT_EQ(got.core.learn_above, 0U);
  EXPECT_FALSE(got.core.checkpoints);
}

TEST(SlotResources, OfMembersThatHaveDevicesAndAreNotBound) {
  placement::PlacedJob placed;
  EXPECT_TRUE(slot_resources(placed).empty());
  placed.environments = {{{"CUDA_VISIBLE_DEVICES", "0"}}, {{"CUDA_VISIBLE_DEVICES", "1"}}};
  const auto got = slot_resources(placed);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_TRUE(got[1].cores.empty());
  EXPECT_EQ(got[1].environment.at("CUDA_VISIBLE_DEVICES"), "1");
}

TEST(ElasticAgentOptions, APlaneOfGpusHasTheLeafBuffersThatTheShardsNeed) {
  spec::JobSpec spec;
  WorldStart start = world_start();
  start.shards = 6;
  EXPECT_EQ(elastic_setup(spec, 4, start).leaf_buffers, 0U);
  spec.plane = proto::Plane::kCuda;
  EXPECT_EQ(elastic_setup(spec, 4, start).leaf_buffers, proto::canonical_buffers(6));
  spec.leaf_buffers = 2;
  EXPECT_EQ(elastic_setup(spec, 4, start).leaf_buffers, 2U);
}

}  // namespace
}  // namespace regroup::job
