// One host and several differ in four fields: on several, the coordinator itself counts the slots.
#include "launcher/job/coordinator_options.h"

#include <algorithm>

#include "launcher/job/allocation_scaler.h"

namespace regroup::job {
namespace {

bool by_node(const spec::MapBy& map) {
  return map.kind == spec::MapBy::Kind::kUnit && map.unit == spec::Unit::kNode;
}

}  // namespace

CoordinatorOptions coordinator_options(const spec::JobSpec& spec, const Members& members,
                                       const WorldStart& world, const JobFiles& files,
                                       std::optional<std::uint32_t> slots) {
  CoordinatorOptions out;
  out.policy = {.min = members.min,
                .max = members.max,
                .target = slots ? members.start : spec.initial_size,
                .spares = spec.spares,
                .any_fingerprint = spec.any_fingerprint,
                .replace = spec.replace,
                .shards = world.shards,
                .min_members_timeout = spec.min_members_timeout,
                .ready_timeout = spec.ready_timeout,
                .kept_results = spec.learner_steps,
                .learn_above = spec.learner_state,
                .hang_timeout = spec.hang.timeout,
                .on_hang = spec.hang.action,
                .plane = spec.plane};
  if (world.checkpoints.resume) out.policy.resume = world.checkpoints.resume->step;
  if (spec.max_restarts) out.policy.relaunch.max_restarts = *spec.max_restarts;
  out.job = {.id = files.id(), .seed = world.seed};
  out.files = files;
  out.quiet = spec.quiet;
  if (slots) {
    const std::uint32_t most = members.max + spec.spares;
    out.policy.slots = spec.oversubscribe ? std::max(most, *slots) : *slots;
    return out;
  }
  out.job.nodes = {};
  out.policy.oversubscribe = spec.oversubscribe;
  out.policy.grows = AllocationScaler::can_grow(spec);
  out.policy.by_node = by_node(spec.mapping.map);
  return out;
}

}  // namespace regroup::job
