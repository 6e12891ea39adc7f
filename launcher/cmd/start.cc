// Shared by jobs of all kinds, so that each of them differs only in what it is.
#include "launcher/cmd/start.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <utility>

#include "launcher/cmd/job_files.h"
#include "launcher/supervise/open_files.h"
#include "launcher/supervise/priority.h"
#include "launcher/supervise/signals.h"
#include "launcher/topo/nvml.h"

namespace regroup::cmd {

int fail(const std::string& message, int exit_status) {
  fmt::print(stderr, "regroup: {}\n", message);
  return exit_status;
}

std::string new_job_id() {
  std::uint32_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != sizeof bits) bits = static_cast<std::uint32_t>(::getpid());
  return fmt::format("{:08x}", bits);
}

std::shared_ptr<launcher::JobRecord> record_of(const launcher::Environment& environment,
                                               const std::string& job) {
  const auto folder = runtime_folder(environment);
  if (!folder.ok()) return nullptr;
  auto record = launcher::JobRecord::create(*folder, job);
  return record.ok() ? std::move(*record) : nullptr;
}

launcher::CrewOptions crew_of(const Options& options, std::vector<launcher::App> apps) {
  launcher::CrewOptions crew;
  crew.apps = std::move(apps);
  crew.job = new_job_id();
  crew.record = record_of(options.environment, crew.job);
  crew.output = options.output;
  crew.stdin_to = options.stdin_to;
  crew.verbose = options.verbose;
  crew.tell_exit_codes = options.print_exit_codes;
  crew.quiet = options.quiet;
  crew.priority = launcher::current_priority();
  crew.open_files = launcher::raise_open_files();
  return crew;
}

// Of NVIDIA's, asked only for members that were given some; the library is loaded for the first of them.
launcher::UsageMeter::GpuReader gpu_reader() {
  auto nvml = std::make_shared<std::optional<core::Result<launcher::Nvml>>>();
  return [nvml](const std::string& uuid) -> core::Result<launcher::GpuUse> {
    if (!*nvml) *nvml = launcher::Nvml::open();
    if (!(*nvml)->ok()) return (*nvml)->status();
    auto sample = (**nvml)->sample(uuid);
    if (!sample.ok()) return sample.status();
    return launcher::GpuUse{sample->uuid, sample->busy_percent, sample->memory_used, sample->memory_total,
                            sample->watts};
  };
}

launcher::AgentOptions agent_options(const Options& options, launcher::CrewOptions crew,
                                     launcher::HeldPort port) {
  launcher::AgentOptions agent{std::move(crew), std::move(port), options.term_grace, options.timeout};
  agent.usage.log = options.usage_log;
  agent.usage.read_gpu = gpu_reader();
  if (options.compat == launcher::Compat::kMpich)
    agent.stopped_status = agent.timeout_status = agent.start_failed_status = kHydraFailed;
  return agent;
}

// Hydra's rules are for jobs that hydra knows: members that are started again would outlive its SIGINT.
std::vector<int> forwarded_signals(const Options& options) {
  if (options.forward_signals) return *options.forward_signals;
  const bool of_mpi = !options.elastic && !has_roles(options);
  return launcher::signals_forwarded_by(of_mpi ? options.compat : launcher::Compat::kOpenMpi);
}

// Without a folder of our own to work in there are no services for MPI programs.
std::optional<pmi::HelperOptions> helper_options(const Options& options, const std::string& job) {
  auto folder = runtime_folder(options.environment);
  if (!folder.ok()) {
    fail(fmt::format("MPI programs have no services of their launcher: {}", folder.status().message()), 0);
    return std::nullopt;
  }
  pmi::HelperOptions helper;
  helper.program = pmi::find_helper();
  helper.job = job;
  helper.folder = *folder;
  const auto library = options.environment.find("REGROUP_LIBPMIX");
  if (library != options.environment.end()) helper.library = library->second;
  helper.environment = options.environment;
  helper.verbose = options.verbose;
  return helper;
}

}  // namespace regroup::cmd
