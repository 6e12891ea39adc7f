// What jobs of every kind are started with.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/cmd/options.h"
#include "launcher/containment/job_record.h"
#include "launcher/pmi/helper.h"
#include "launcher/supervise/agent.h"

namespace regroup::cmd {

// Says "regroup: MESSAGE" on standard error; the exit status given.
int fail(const std::string& message, int exit_status);

[[nodiscard]] std::string new_job_id();
// By it the next regroup finds what a launcher leaves that is killed altogether. The job can do without.
[[nodiscard]] std::shared_ptr<launcher::JobRecord> record_of(const launcher::Environment& environment,
                                                             const std::string& job);
// What all members have in common; the rest of AgentOptions comes from the agent's own process.
[[nodiscard]] launcher::CrewOptions crew_of(const Options& options, std::vector<launcher::App> apps);
[[nodiscard]] launcher::AgentOptions agent_options(const Options& options, launcher::CrewOptions crew,
                                                   launcher::HeldPort port);
[[nodiscard]] std::vector<int> forwarded_signals(const Options& options);
// None, which has been said: MPI programs get no services.
[[nodiscard]] std::optional<pmi::HelperOptions> helper_options(const Options& options,
                                                               const std::string& job);

}  // namespace regroup::cmd
