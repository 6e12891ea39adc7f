// Parts of the start that jobs of all kinds share.
#include "launcher/job/start.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "base/printable.h"
#include "base/status.h"
#include "launcher/job/grant.h"
#include "launcher/job/job_files.h"
#include "launcher/job/resolve.h"
#include "launcher/process/open_files.h"
#include "launcher/process/priority.h"
#include "launcher/process/signals.h"
#include "launcher/process/time_limit.h"
#include "launcher/topology/nvml.h"

namespace regroup::job {
namespace {

// Of a notice's time, for what comes after members.
constexpr base::Duration kClearing = std::chrono::seconds(1);

base::Duration said_term_grace(const spec::JobSpec& spec) {
  if (spec.term_grace_given || !spec.notice_grace) return spec.term_grace;
  return std::max(*spec.notice_grace - kClearing, *spec.notice_grace / 2);
}

}  // namespace

int fail(const std::string& message, int exit_status) {
  fmt::print(stderr, "regroup: {}\n", base::escaped_lines(message));
  return exit_status;
}

std::string new_job_id() {
  std::uint32_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != sizeof bits)
    bits = static_cast<std::uint32_t>(::getpid());
  return fmt::format("{:08x}", bits);
}

std::shared_ptr<process::JobRecord> record_of(const spec::Environment& environment,
                                              const std::string& job) {
  const auto folder = runtime_folder(environment);
  if (!folder.ok()) return nullptr;
  auto record = process::JobRecord::create(*folder, job);
  return record.ok() ? std::move(*record) : nullptr;
}

process::ProcessTableOptions process_table_options(const spec::JobSpec& spec,
                                                   std::vector<process::App> apps) {
  process::ProcessTableOptions processes;
  processes.apps = std::move(apps);
  processes.job = new_job_id();
  processes.record = record_of(spec.environment, processes.job);
  processes.claims = process::claim_scope(spec.environment, processes.job);
  processes.output = spec.output;
  processes.stdin_to = spec.stdin_to;
  processes.verbose = spec.verbose;
  processes.tell_exit_codes = spec.print_exit_codes;
  processes.quiet = spec.quiet;
  processes.memory = spec.mapping.memory;
  processes.priority = process::current_priority();
  processes.open_files = process::raise_open_files();
  return processes;
}

// Reads NVIDIA GPUs of members that were assigned some; the library is loaded for the first such
// member.
metrics::UsageMeter::GpuReader gpu_reader() {
  auto nvml = std::make_shared<std::optional<base::Result<topology::Nvml>>>();
  return [nvml](const std::string& uuid) -> base::Result<metrics::GpuReading> {
    if (!*nvml) *nvml = topology::Nvml::open();
    if (!(*nvml)->ok()) return (*nvml)->status();
    REGROUP_ASSIGN_OR_RETURN(auto sample, (**nvml)->sample(uuid));
    metrics::GpuReading out{
        {sample.uuid, sample.busy_percent, sample.memory_used, sample.memory_total, sample.watts},
        {}};
    out.use.faults = std::move(sample.faults);
    for (const topology::GpuProcess& process : sample.processes)
      out.processes.push_back(
          {static_cast<pid_t>(process.pid), process.memory_used, process.busy_percent});
    return out;
  };
}

agent::AgentOptions agent_options(const spec::JobSpec& spec, process::ProcessTableOptions processes,
                                  process::HeldPort port) {
  agent::AgentOptions agent{std::move(processes), std::move(port), said_term_grace(spec)};
  agent.timeout = spec.timeout;
  agent.teardown_limit = process::time_limit(spec.environment, agent.teardown_limit);
  agent.notice_status = spec.notice_status;
  agent.usage.log = spec.usage_log;
  // A sample reads all of /proc. Sample fixed-size jobs less often, since many of them may share a
  // host.
  if (!spec.elastic && spec.usage_log.empty()) agent.usage.every = std::chrono::seconds(10);
  agent.usage.read_gpu = gpu_reader();
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  agent.usage.host = name.data();
  if (spec.compat == spec::Compat::kMpich)
    agent.stopped_status = agent.timeout_status = agent.start_failed_status = kHydraFailed;
  return agent;
}

base::Duration notice_grace(const spec::JobSpec& spec) {
  constexpr std::chrono::seconds kUsual{30};
  if (spec.notice_grace) return *spec.notice_grace;
  if (spec.grant.by.empty()) return kUsual;
  const auto grace = grace_of(spec.environment, spec.allocator);
  return grace.ok() ? grace->host : kUsual;
}

base::Duration term_grace(const spec::JobSpec& spec) {
  if (spec.term_grace_given || spec.notice_grace || spec.grant.by.empty())
    return said_term_grace(spec);
  const auto grace = grace_of(spec.environment, spec.allocator);
  return grace.ok() ? std::max(grace->head - kClearing, grace->head / 2) : spec.term_grace;
}

std::unique_ptr<preempt::NoticeWatch> watch_notices(const spec::JobSpec& spec,
                                                    agent::Agent& agent) {
  if (!spec.notice.any()) return nullptr;
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  auto watch = std::make_unique<preempt::NoticeWatch>(
      agent.loop(), spec.notice, name.data(), spec.environment,
      preempt::NoticeWatch::Events{
          [&spec, &agent](const preempt::Notice& notice, const std::string& source) {
            // A notice that has begun does not say how much time is left. The usual grace is used,
            // and no less time, because only this deadline ends the job.
            const base::Duration within =
                notice.begun ? notice_grace(spec) : notice.within.value_or(notice_grace(spec));
            if (!spec.quiet) {
              agent.say(fmt::format("{}: {} within {:g} s: the job {}", source,
                                    preempt::kind_name(notice.kind),
                                    std::chrono::duration<double>(within).count(),
                                    agent.ending() ? "has less time" : "ends"));
            }
            agent.on_notice(within);
          },
          [&spec, &agent](const std::string& text) {
            if (!spec.quiet && !agent.ending()) agent.say(text);
          }});
  watch->start();
  return watch;
}

void show_placement(const spec::JobSpec& spec, const alloc::Allocation& allocation,
                    const ResolvedJob& job) {
  for (const std::string& warning : job.placed.warnings) {
    if (!spec.quiet) fail(warning, 0);
  }
  placement::print_display(spec, allocation, job.placed, job.counts);
}

// Hydra's rules hold for fixed-size jobs only: restarted members would outlive its SIGINT.
std::vector<int> forwarded_signals(const spec::JobSpec& spec) {
  if (spec.forward_signals) return *spec.forward_signals;
  const bool of_mpi = !spec.elastic && !has_roles(spec);
  auto signals = process::signals_forwarded_by(of_mpi ? spec.compat : spec::Compat::kOpenMpi);
  const std::vector<int> ours = notice_signals(spec);
  std::erase_if(signals, [&](int signal) { return std::ranges::find(ours, signal) != ours.end(); });
  // Grid Engine sends SIGUSR1 before it stops a job; forwarded it would kill members.
  if (spec.grant.by.starts_with("Grid Engine")) std::erase(signals, SIGUSR1);
  return signals;
}

// SIGUSR2: `notify` seconds before SIGKILL (Grid Engine, qsub -notify), at the run limit (LSF).
std::vector<int> notice_signals(const spec::JobSpec& spec) {
  if (spec.notice_signals) return *spec.notice_signals;
  const bool theirs = spec.grant.by.starts_with("Grid Engine") || spec.grant.by.starts_with("LSF");
  if (spec.forward_signals || !theirs) return {};
  return {SIGUSR2};
}

// MPI programs get no services if there is no private folder for them.
std::optional<pmi::HelperOptions> helper_options(const spec::JobSpec& spec,
                                                 const std::string& job) {
  auto folder = runtime_folder(spec.environment);
  if (!folder.ok()) {
    fail(fmt::format("MPI programs get no PMI services: {}", folder.status().message()), 0);
    return std::nullopt;
  }
  pmi::HelperOptions helper;
  helper.program = pmi::find_helper();
  helper.job = job;
  helper.folder = *folder;
  const auto library = spec.environment.find("REGROUP_LIBPMIX");
  if (library != spec.environment.end()) helper.library = library->second;
  helper.environment = spec.environment;
  helper.answer_limit = process::time_limit(spec.environment, helper.answer_limit);
  helper.verbose = spec.verbose;
  return helper;
}

}  // namespace regroup::job
