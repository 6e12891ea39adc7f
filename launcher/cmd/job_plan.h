// What a command line comes to on this machine, before anything is started: job file read, members counted,
// folders and programs found.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "launcher/alloc/allocator.h"
#include "launcher/cmd/options.h"
#include "launcher/roles/cluster_spec.h"
#include "launcher/supervise/app.h"

namespace regroup::cmd {

struct JobPlan {
  std::vector<launcher::App> apps;
  std::vector<std::uint32_t> counts;  // members of each app
  std::vector<launcher::Role> roles;  // role i runs app i; empty: a job without roles
  std::string name;                   // of a job of roles
};

struct Refusal {
  int exit_status = 1;
  std::string message;
};

// Completes `options` (members, start, shards, what a job file says) and makes the plan. On several hosts
// each looks for folders and programs itself.
[[nodiscard]] std::variant<JobPlan, Refusal> plan_job(Options& options,
                                                      const launcher::Allocation& allocation);

}  // namespace regroup::cmd
