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

CoordinatorOptions coordinator_options(const spec::Options& options, const Members& members,
                                       const WorldStart& world, const JobFiles& files,
                                       std::optional<std::uint32_t> slots) {
  CoordinatorOptions out;
  out.policy = {.min = members.min,
                .max = members.max,
                .target = slots ? members.start : options.start,
                .spares = options.spares,
                .any_fingerprint = options.any_fingerprint,
                .replace = options.replace,
                .shards = world.shards,
                .wait = options.wait,
                .ready_timeout = options.ready_timeout,
                .kept_results = options.learner_steps,
                .learn_above = options.learner_state,
                .hung_after = options.hung.after,
                .kill_hung = options.hung.kill,
                .drop_hung = options.hung.drop};
  if (world.checkpoints.resume) out.policy.resume = world.checkpoints.resume->step;
  if (options.max_restarts) out.policy.relaunch.max_restarts = *options.max_restarts;
  out.job = {.id = files.id(), .seed = world.seed};
  out.files = files;
  out.quiet = options.quiet;
  if (slots) {
    const std::uint32_t most = members.max + options.spares;
    out.policy.slots = options.oversubscribe ? std::max(most, *slots) : *slots;
    return out;
  }
  out.job.nodes = {};
  out.policy.oversubscribe = options.oversubscribe;
  out.policy.grows = AllocationScaler::can_grow(options);
  out.policy.by_node = by_node(options.mapping.map);
  return out;
}

}  // namespace regroup::job
