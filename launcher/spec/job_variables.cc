// srun(1), "INPUT ENVIRONMENT VARIABLES" and "OUTPUT ENVIRONMENT VARIABLES", Slurm 22.05 to 25.11;
// pbsdsh(1) of Torque 6.1 and OpenPBS 23.06; LSF 10.1, "Environment variables set for job
// execution"; flux-exec(1) of flux-core 0.70; submit(1) of Grid Engine 8.1.9.
#include "launcher/spec/job_variables.h"

#include <algorithm>
#include <span>
#include <string>

#include "launcher/spec/host_list.h"

namespace regroup::spec {
namespace {

using NameList = std::span<const std::string_view>;

constexpr std::string_view kSlurmPrefixes[] = {"SLURM_", "SLURMD_"};
constexpr std::string_view kSlurmHost[] = {"SLURMD_NODENAME",
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
constexpr std::string_view kSlurmSite[] = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT",
                                           "SLURM_CLUSTERS", "SLURM_DEBUG_FLAGS"};

constexpr std::string_view kPbsPrefixes[] = {"PBS_"};
constexpr std::string_view kPbsHost[] = {"PBS_MOMPORT", "PBS_NODENUM", "PBS_TASKNUM",
                                         "PBS_VNODENUM"};
constexpr std::string_view kPbsSite[] = {"PBS_CONF_FILE", "PBS_DEFAULT", "PBS_EXEC", "PBS_HOME",
                                         "PBS_SERVER"};

constexpr std::string_view kLsfPrefixes[] = {"LSB_", "LSF_", "LS_"};
constexpr std::string_view kLsfHost[] = {"LSB_BIND_CPU_LIST",   "LSB_BIND_MEM_LIST",
                                         "LSB_BIND_MEM_POLICY", "LSB_JOBPID",
                                         "LSB_JOBRES_PID",      "LS_JOBPID"};
constexpr std::string_view kLsfSite[] = {"LSF_BINDIR", "LSF_ENVDIR", "LSF_LIBDIR", "LSF_SERVERDIR",
                                         "LSF_VERSION"};

constexpr std::string_view kFluxPrefixes[] = {"FLUX_"};
constexpr std::string_view kFluxHost[] = {"FLUX_LOCAL_URI", "FLUX_URI"};  // sockets of its broker
constexpr std::string_view kFluxSite[] = {"FLUX_CONNECTOR_PATH", "FLUX_EXEC_PATH",
                                          "FLUX_MODULE_PATH", "FLUX_PMI_LIBRARY_PATH"};

constexpr std::string_view kGridEnginePrefixes[] = {"SGE_", "QRSH_"};
constexpr std::string_view kGridEngineNames[] = {
    "ARC", "ENVIRONMENT", "JOB_ID", "JOB_NAME", "JOB_SCRIPT", "NHOSTS",    "NQUEUES", "NSLOTS",
    "PE",  "PE_HOSTFILE", "QUEUE",  "REQNAME",  "REQUEST",    "RESTARTED", "TASK_ID"};
constexpr std::string_view kGridEngineHost[] = {
    "ARC", "QUEUE", "SGE_ARCH", "SGE_BINARY_PATH", "SGE_BINDING", "SGE_JOB_SPOOL_DIR"};
constexpr std::string_view kGridEngineSite[] = {"SGE_CELL", "SGE_CLUSTER_NAME", "SGE_EXECD_PORT",
                                                "SGE_QMASTER_PORT", "SGE_ROOT"};

struct Family {
  std::string_view in_job;   // is set in each job
  std::string_view id;       // of the job
  NameList prefixes, names;  // the names of its variables begin with, or are
  NameList of_host;          // differ between hosts of a job
  NameList of_site;          // how commands of the allocator reach its daemons
};

constexpr Family kSlurm{"SLURM_JOB_ID", "SLURM_JOB_ID", kSlurmPrefixes, {}, kSlurmHost, kSlurmSite};
constexpr Family kFamilies[] = {
    kSlurm,
    {"PBS_JOBID", "PBS_JOBID", kPbsPrefixes, {}, kPbsHost, kPbsSite},
    {"LSB_JOBID", "LSB_JOBID", kLsfPrefixes, {}, kLsfHost, kLsfSite},
    // What `flux batch` and `flux alloc` start has no id in its own instance.
    {"FLUX_URI", "FLUX_JOB_ID", kFluxPrefixes, {}, kFluxHost, kFluxSite},
    // Others may call a variable JOB_ID, too.
    {"SGE_TASK_ID", "JOB_ID", kGridEnginePrefixes, kGridEngineNames, kGridEngineHost,
     kGridEngineSite}};

bool is_in(NameList names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_of(const Family& family, std::string_view name) {
  return is_in(family.names, name) ||
         std::ranges::any_of(family.prefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string value(const Environment& environment, std::string_view name) {
  const auto found = environment.find(std::string(name));
  return found == environment.end() ? "" : found->second;
}

template <typename Condition>
void remove(Environment& environment, const Family& family, const Condition& condition) {
  std::erase_if(environment, [&](const auto& entry) {
    return is_of(family, entry.first) && condition(entry.first);
  });
}

// The number of this host in the job; in its step it is the only one.
void number_host(const Environment& sent, Environment& own) {
  const auto hosts = expand_host_list(value(sent, "SLURM_JOB_NODELIST"));
  if (!hosts.ok()) return;
  const auto here = std::ranges::find(*hosts, value(own, "SLURMD_NODENAME"));
  if (here != hosts->end()) own["SLURM_NODEID"] = std::to_string(here - hosts->begin());
}

void share(const Family& family, Environment& sent, Environment& own) {
  const bool there = !value(sent, family.in_job).empty();
  const bool here = !value(own, family.in_job).empty();
  if (!there && !here) return;
  if (here && (!there || value(sent, family.id) != value(own, family.id)))
    return remove(sent, family, [](const std::string&) { return true; });
  remove(own, family, [&](const std::string& name) {
    return !is_in(family.of_host, name) && !is_in(family.of_site, name);
  });
  remove(sent, family, [&](const std::string& name) {
    return is_in(family.of_host, name) || (is_in(family.of_site, name) && own.contains(name));
  });
}

}  // namespace

void share_job_variables(Environment& sent, Environment& own) {
  for (const Family& family : kFamilies) share(family, sent, own);
  if (!value(sent, kSlurm.in_job).empty()) number_host(sent, own);
}

Environment environment_for(std::string_view command, Environment environment) {
  std::erase_if(environment, [&](const auto& entry) {
    const std::string& name = entry.first;
    // srun gets the job by --jobid, so it needs none of the variables that describe it.
    if (command == "srun")
      return name.starts_with("SRUN_") || (is_of(kSlurm, name) && !is_in(kSlurm.of_site, name));
    if (command == "qrsh") return name == "SGE_DEBUG_LEVEL" || name.starts_with("QRSH_");
    return command == "blaunch" && name == "LSF_NIOS_DEBUG";
  });
  return environment;
}

}  // namespace regroup::spec
