// srun(1), "INPUT ENVIRONMENT VARIABLES" and "OUTPUT ENVIRONMENT VARIABLES", Slurm 22.05 to 25.11.
// srun gets the job by --jobid, so it needs none of the variables that describe it.
#include "launcher/spec/slurm_variables.h"

#include <algorithm>
#include <array>

#include "launcher/spec/host_list.h"

namespace regroup::spec {
namespace {

// Of a host, or of its slurmd.
constexpr std::array<std::string_view, 11> kOfHost = {"SLURMD_NODENAME",
                                                      "SLURMD_DEBUG",
                                                      "SLURMD_TRES_BIND",
                                                      "SLURM_CPUS_ON_NODE",
                                                      "SLURM_GPUS_ON_NODE",
                                                      "SLURM_JOB_GPUS",
                                                      "SLURM_NODEID",
                                                      "SLURM_STEP_GPUS",
                                                      "SLURM_TASK_PID",
                                                      "SLURM_TOPOLOGY_ADDR",
                                                      "SLURM_TOPOLOGY_ADDR_PATTERN"};

// How commands of Slurm reach its daemons.
constexpr std::array<std::string_view, 5> kOfSite = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT",
                                                     "SLURM_CLUSTERS", "SLURM_DEBUG_FLAGS"};

template <std::size_t Size>
bool is_in(const std::array<std::string_view, Size>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::string value(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

// The number of this host in the job; in its step it is the only one.
void number_host(Environment& out) {
  const auto hosts = expand_host_list(value(out, "SLURM_JOB_NODELIST"));
  if (!hosts.ok()) return;
  const auto here = std::ranges::find(*hosts, value(out, "SLURMD_NODENAME"));
  if (here != hosts->end()) out["SLURM_NODEID"] = std::to_string(here - hosts->begin());
}

}  // namespace

bool is_slurm_variable(std::string_view name) {
  return name.starts_with("SLURM_") || name.starts_with("SLURMD_");
}

Environment slurm_variables(const Environment& sent, const Environment& own) {
  const std::string job = value(own, "SLURM_JOB_ID");
  const bool same = !job.empty() && value(sent, "SLURM_JOB_ID") == job;
  Environment out;
  for (const auto& [name, text] : own) {
    if (is_slurm_variable(name) && (!same || is_in(kOfHost, name) || is_in(kOfSite, name)))
      out.emplace(name, text);
  }
  if (!same) return out;
  for (const auto& [name, text] : sent) {
    if (is_slurm_variable(name) && !is_in(kOfHost, name)) out.emplace(name, text);
  }
  number_host(out);
  return out;
}

Environment without_srun_options(Environment environment) {
  std::erase_if(environment, [](const auto& entry) {
    return entry.first.starts_with("SRUN_") ||
           (is_slurm_variable(entry.first) && !is_in(kOfSite, entry.first));
  });
  return environment;
}

}  // namespace regroup::spec
