// What a command line comes to on this machine, before anything is started: members counted,
// folders and programs found.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "launcher/alloc/allocator.h"
#include "launcher/job/option_rules.h"
#include "launcher/job/role_job.h"
#include "launcher/placement/members.h"
#include "launcher/process/app.h"

namespace regroup::job {

struct JobPlan {
  std::vector<process::App> apps;
  std::vector<std::uint32_t> counts;  // members of each app
};

struct Refusal {
  int exit_status = 1;
  std::string message;
};

// Completes `options` (members, start, shards) and makes the plan. On several hosts
// each looks for folders and programs itself.
[[nodiscard]] std::variant<JobPlan, Refusal> plan_job(spec::Options& options,
                                                      const alloc::Allocation& allocation);

// What members of roles need; of a job without roles nothing but what the options say.
[[nodiscard]] placement::MemberNeeds needs_of(const spec::Options& options, const JobPlan& plan);

// Without its hosts and ports. `job`: its id.
[[nodiscard]] RoleJobOptions role_options(const spec::Options& options, const std::string& job,
                                          const placement::PlacedJob& placed);

// Slots of the arena of each host of an elastic job.
[[nodiscard]] std::uint32_t arena_slots(const spec::Options& options);

// The exit status of a job whose members cannot be placed: as Open MPI 5 has it.
[[nodiscard]] int placing_failed(const spec::Options& options);

}  // namespace regroup::job
