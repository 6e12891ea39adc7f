// What jobs of every kind are started with.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/cmd/options.h"
#include "launcher/containment/job_record.h"
#include "launcher/notice/notice_watch.h"
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
[[nodiscard]] launcher::ProcessTableOptions process_table_options(const Options& options,
                                                                  std::vector<launcher::App> apps);
[[nodiscard]] launcher::AgentOptions agent_options(const Options& options,
                                                   launcher::ProcessTableOptions processes,
                                                   launcher::HeldPort port);
// From a notice that does not say it to the loss of a host: --notice-grace, else as the allocator has it,
// whose commands this may run, else 30 s.
[[nodiscard]] core::Duration notice_grace(const Options& options);
// From SIGTERM to a job of MIN:MAX to SIGKILL: --term-grace, else what its allocator gives it, less a second.
[[nodiscard]] core::Duration term_grace(const Options& options);
// Asks the sources of --notice-file and its like, if there are any, and tells `agent`, whose members are on
// this host; to be kept as long as that runs.
[[nodiscard]] std::unique_ptr<launcher::NoticeWatch> watch_notices(const Options& options,
                                                                   launcher::Agent& agent);
// Asks NVML about GPUs that members were given.
[[nodiscard]] launcher::UsageMeter::GpuReader gpu_reader();
[[nodiscard]] std::vector<int> forwarded_signals(const Options& options);
// By which an allocator says that it will end the job; they are not forwarded.
[[nodiscard]] std::vector<int> notice_signals(const Options& options);
// None, which has been said: MPI programs get no services.
[[nodiscard]] std::optional<pmi::HelperOptions> helper_options(const Options& options,
                                                               const std::string& job);

}  // namespace regroup::cmd
