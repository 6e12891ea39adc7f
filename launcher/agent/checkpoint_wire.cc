// An empty resume_path on the wire means that the plan resumes from nothing.
#include "launcher/agent/checkpoint_wire.h"

namespace regroup::agent {

std::unique_ptr<fb::CheckpointsT> checkpoints(const spec::CheckpointPlan& plan) {
  if (plan.directory.empty()) return nullptr;
  auto t = std::make_unique<fb::CheckpointsT>();
  t->directory = plan.directory, t->shared = plan.shared, t->every = plan.every,
  t->memory = plan.memory;
  t->keep_last = plan.keep_last, t->keep_every = plan.keep_every;
  t->job = plan.job, t->seed = plan.seed, t->shards = plan.shards;
  if (!plan.resume) return t;
  t->resume_path = plan.resume->path, t->resume_step = plan.resume->step;
  t->resume_fingerprint = plan.resume->fingerprint;
  return t;
}

spec::CheckpointPlan plain_checkpoints(const fb::CheckpointsT& t) {
  spec::CheckpointPlan plan;
  plan.directory = t.directory, plan.shared = t.shared, plan.every = t.every,
  plan.memory = t.memory;
  plan.keep_last = t.keep_last, plan.keep_every = t.keep_every;
  plan.job = t.job, plan.seed = t.seed, plan.shards = t.shards;
  if (!t.resume_path.empty())
    plan.resume =
        spec::Resume{t.resume_path, t.resume_step, t.seed, t.shards, t.resume_fingerprint};
  return plan;
}

}  // namespace regroup::agent
