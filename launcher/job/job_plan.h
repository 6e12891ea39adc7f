// What a command line comes to on this machine, before anything is started: members counted,
// folders and programs found.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "launcher/job/resolve.h"
#include "launcher/job/role_job.h"
#include "launcher/placement/members.h"
#include "launcher/process/app.h"

namespace regroup::job {

struct JobPlan {
  std::vector<process::App> apps;
  Members members;
};

// The plan for `asked` members (members_of()) on `slots` slots. On several hosts each looks for
// folders and programs itself.
[[nodiscard]] std::variant<JobPlan, Refusal> plan_job(const spec::Options& options,
                                                      spec::MemberRange asked, std::uint32_t slots);

// Without its hosts and ports. `job`: its id.
[[nodiscard]] RoleJobOptions role_options(const spec::Options& options, const std::string& job,
                                          const placement::PlacedJob& placed);

}  // namespace regroup::job
