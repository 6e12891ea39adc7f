// The coordinator's process: turns the agent's messages, control commands and time into calls of
// membership::Coordinator, and its effects into messages and journal records.
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"
#include "launcher/job/job_files.h"
#include "launcher/process/terminal_line.h"
#include "membership/coordinator/coordinator.h"
#include "proto/world.h"

namespace regroup::job {

struct CoordinatorOptions {
  membership::Policy policy;
  membership::JobInfo job;
  JobFiles files;
  bool quiet = false;
  bool progress = false;  // print the progress of the training on standard error
  // Where standard error is a terminal that several processes of the launcher share; or null.
  std::shared_ptr<process::TerminalLine> line = {};
};

// Serves until the link to the agent is gone; the exit status of this process, never 0. For a
// process of its own, signals blocked.
[[nodiscard]] int run_coordinator(const CoordinatorOptions& options, base::Fd agent,
                                  proto::Incarnation incarnation);

}  // namespace regroup::job
