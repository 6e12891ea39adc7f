// Parts of the start that jobs of all kinds share.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/agent.h"
#include "launcher/job/option_rules.h"
#include "launcher/pmi/helper.h"
#include "launcher/preempt/notice_watch.h"
#include "launcher/process/job_record.h"

namespace regroup::alloc {
struct Allocation;
}  // namespace regroup::alloc

namespace regroup::job {

struct ResolvedJob;

// Prints "regroup: MESSAGE" on standard error and returns `exit_status`.
int fail(const std::string& message, int exit_status);

[[nodiscard]] std::string new_job_id();
// Lets the next regroup find the processes of a launcher that was killed with its reaper. Null: the
// job runs without a record.
[[nodiscard]] std::shared_ptr<process::JobRecord> record_of(const spec::Environment& environment,
                                                            const std::string& job);
// Options that all members share; the agent's process adds the rest of AgentOptions.
[[nodiscard]] process::ProcessTableOptions process_table_options(const spec::JobSpec& spec,
                                                                 std::vector<process::App> apps);
[[nodiscard]] agent::AgentOptions agent_options(const spec::JobSpec& spec,
                                                process::ProcessTableOptions processes,
                                                process::HeldPort port);
// Time from a notice without a deadline to the loss of the host: --notice-grace, else the
// allocator's, for which this may run its commands, else 30 s.
[[nodiscard]] base::Duration notice_grace(const spec::JobSpec& spec);
// Time from SIGTERM to SIGKILL for an elastic job: --term-grace, else the allocator's less a
// second.
[[nodiscard]] base::Duration term_grace(const spec::JobSpec& spec);
// Watches --notice-file and the other sources of notices and passes notices to `agent`, whose
// members run on this host. The result must live as long as the agent runs; null: there are no
// sources.
[[nodiscard]] std::unique_ptr<preempt::NoticeWatch> watch_notices(const spec::JobSpec& spec,
                                                                  agent::Agent& agent);
// Prints the warnings of the placement, and what --display asks for.
void show_placement(const spec::JobSpec& spec, const alloc::Allocation& allocation,
                    const ResolvedJob& job);
// Reads the use of the members' GPUs by NVML.
[[nodiscard]] metrics::UsageMeter::GpuReader gpu_reader();
[[nodiscard]] std::vector<int> forwarded_signals(const spec::JobSpec& spec);
// Signals by which an allocator announces the end of the job; they are not forwarded.
[[nodiscard]] std::vector<int> notice_signals(const spec::JobSpec& spec);
// None: MPI programs get no services; the reason has been printed.
[[nodiscard]] std::optional<pmi::HelperOptions> helper_options(const spec::JobSpec& spec,
                                                               const std::string& job);

}  // namespace regroup::job
