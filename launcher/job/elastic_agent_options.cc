// A field that agents need goes through agent::ElasticSetup, so that no host is left out.
#include "launcher/job/elastic_agent_options.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "proto/canonical.h"

namespace regroup::job {

agent::ElasticSetup elastic_setup(const spec::JobSpec& spec, std::uint32_t arena_slots,
                                  const WorldStart& world) {
  return {.arena_slots = arena_slots,
          .shards = world.shards,
          .seed = world.seed,
          .any_fingerprint = spec.any_fingerprint,
          .kept_results = spec.elastic ? spec.learner_steps : 0,
          .learn_above = spec.elastic ? spec.learner_state : 0,
          .checkpoints = world.checkpoints,
          .leaf_buffers = spec.leaf_buffers.value_or(spec.plane == proto::Plane::kCuda ||
                                                             spec.plane == proto::Plane::kNccl
                                                         ? proto::canonical_buffers(world.shards)
                                                         : 0),
          .finished_limit = std::chrono::ceil<std::chrono::milliseconds>(spec.hang.timeout)};
}

ElasticAgentOptions elastic_agent_options(const agent::ElasticSetup& setup) {
  const spec::CheckpointPlan& plan = setup.checkpoints;
  ElasticAgentOptions out;
  out.core = {.slots = setup.arena_slots,
              .shards = setup.shards,
              .seed = setup.seed,
              .any_fingerprint = setup.any_fingerprint,
              .kept_results = setup.kept_results,
              .learn_above = setup.learn_above,
              .checkpoints = plan.every > 0,
              .checkpoint_memory = plan.memory,
              .resumed_fingerprint = plan.resume ? plan.resume->fingerprint : "",
              .leaf_buffers = setup.leaf_buffers};
  for (const agent::SlotResources& resources : setup.slots) {
    out.cores.push_back(resources.cores);
    out.environments.push_back(resources.environment);
  }
  out.checkpoints = plan;
  out.finished_limit = setup.finished_limit;
  return out;
}

std::vector<agent::SlotResources> slot_resources(const placement::PlacedJob& placed) {
  std::vector<agent::SlotResources> out;
  for (std::vector<int>& cores : placed.cores()) out.push_back({std::move(cores), {}});
  out.resize(std::max(out.size(), placed.environments.size()));
  for (std::size_t i = 0; i < placed.environments.size(); ++i)
    out[i].environment = placed.environments[i];
  return out;
}

}  // namespace regroup::job
