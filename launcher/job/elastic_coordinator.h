// The coordinator's process: turns the agent's messages, control commands and time into calls of
// membership::Coordinator, and its effects into messages and journal records.
#pragma once

#include <string>

#include "base/fd.h"
#include "launcher/job/job_files.h"
#include "membership/coordinator/coordinator.h"
#include "proto/world.h"

namespace regroup::job {

struct CoordinatorOptions {
  membership::Policy policy;
  membership::JobInfo job;
  JobFiles files;
  bool quiet = false;
};

// Serves until the link to the agent is gone; the exit status of this process, never 0. For a
// process of its own, signals blocked.
[[nodiscard]] int run_coordinator(const CoordinatorOptions& options, base::Fd agent,
                                  proto::Incarnation incarnation);

}  // namespace regroup::job
