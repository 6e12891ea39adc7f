// What a command line comes to on this machine, before anything is started: members counted,
// folders and programs found.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "launcher/job/option_rules.h"
#include "launcher/job/role_job.h"
#include "launcher/placement/members.h"
#include "launcher/process/app.h"

namespace regroup::job {

struct JobPlan {
  std::vector<process::App> apps;
  Members members;
};

struct Refusal {
  int exit_status = 1;
  std::string message;
};

// The plan for `asked` members (members_of()) on `slots` slots. On several hosts each looks for
// folders and programs itself.
[[nodiscard]] std::variant<JobPlan, Refusal> plan_job(const spec::Options& options,
                                                      spec::MemberRange asked, std::uint32_t slots);

// What members of roles need; of a job without roles nothing but what the options say.
[[nodiscard]] placement::MemberNeeds needs_of(const spec::Options& options, const JobPlan& plan);

// Without its hosts and ports. `job`: its id.
[[nodiscard]] RoleJobOptions role_options(const spec::Options& options, const std::string& job,
                                          const placement::PlacedJob& placed);

// Slots of the arena of each host of an elastic job of at most `members` members, spares among
// them.
[[nodiscard]] std::uint32_t arena_slots(std::uint32_t members);

// The exit status of a job whose members cannot be placed: as Open MPI 5 has it.
[[nodiscard]] int placing_failed(const spec::Options& options);

}  // namespace regroup::job
