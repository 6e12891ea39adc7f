// MPI Operator v2 (pkg/controller/mpi_job_controller.go: newConfigMap,
// updateDiscoverHostsInConfigMap), Indexed Jobs (kubernetes.io, "Indexed Job for Parallel
// Processing with Static Work Assignment") and JobSet (jobset.sigs.k8s.io, pod names
// <jobset>-<replicatedjob>-<job index>-<pod index>.<subdomain>).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/status.h"
#include "base/text.h"
#include "launcher/alloc/reading.h"
#include "launcher/spec/host_list.h"
#include "launcher/spec/hosts.h"

namespace regroup::alloc {
namespace {

using base::invalid_argument;
using base::Result;

constexpr const char* kHostFiles[] = {"OMPI_MCA_orte_default_hostfile",
                                      "PRTE_MCA_prte_default_hostfile", "I_MPI_HYDRA_HOST_FILE",
                                      "HYDRA_HOST_FILE"};

// A pod's name is its host name and random letters, so the pod is found by its labels
// (Kubernetes 1.28).
constexpr const char* kToPod =
    "found=$(kubectl get pods --output=name --field-selector=status.phase=Running "
    "--selector=batch.kubernetes.io/job-name=\"${1%-*}\",batch.kubernetes.io/"
    "job-completion-index=\"${1##*-}\") "
    "|| exit; for pod in $found; do shift; exec kubectl exec --stdin \"$pod\" -- \"$@\"; done; "
    "echo \"no pod of host $1 runs\" >&2; exit 1";

// What the operator keeps up to date with the pods that run.
constexpr const char* kDiscovery = "/etc/mpi/discover_hosts.sh";

// Pods have sshd; if the operator provides its own command to reach pods, uses that.
Result<Reading> read_mpi_operator(const AllocInput& input, const std::string& name) {
  Reading reading;
  REGROUP_ASSIGN_OR_RETURN(const auto text, read_named_file(input, name));
  auto listed = spec::parse_host_file(text, input.value(name));
  if (!listed.ok()) return invalid_argument(fmt::format("{}: {}", name, listed.status().message()));
  HostSum sum(input.value(name));
  for (const spec::HostRequest& host : *listed)
    REGROUP_RETURN_IF_ERROR(sum.add(host.name, host.no_slots ? 0 : std::max(1U, host.slots)));
  reading.facts.push_back(fact(input, name));
  sum.mark_here(input.host_name);
  if (input.read_file && input.read_file(kDiscovery).ok())
    reading.growth = fmt::format("grows as --host-discovery-script {} says", kDiscovery);
  reading.allocation.hosts = std::move(sum.hosts());
  if (input.has("OMPI_MCA_plm_rsh_agent")) {
    reading.facts.push_back(fact(input, "OMPI_MCA_plm_rsh_agent"));
    std::string_view rest = input.value("OMPI_MCA_plm_rsh_agent");
    for (std::string_view word; base::next_blank_word(rest, word);)
      reading.reach.before.emplace_back(word);
  }
  return reading;
}

// The jobs of a replicated job of a JobSet: "train-workers-2" is the third.
struct PodNames {
  std::string before;  // the name before the job's number, if there are several jobs
  std::uint32_t jobs = 1, job = 0;

  [[nodiscard]] std::string name(std::uint32_t number, std::uint32_t pod) const {
    return jobs == 1 ? fmt::format("{}-{}", before, pod)
                     : fmt::format("{}-{}-{}", before, number, pod);
  }
};

// `own`: this pod's name without its number.
Result<PodNames> pod_names(const AllocInput& input, std::string_view own, Reading& reading) {
  PodNames names{std::string(own)};
  if (!input.has("REGROUP_JOBS")) return names;
  const auto bad = [&](const std::string& why) {
    return invalid_argument(fmt::format("{}: {}", fact(input, "REGROUP_JOBS"), why));
  };
  if (!base::whole(input.value("REGROUP_JOBS"), names.jobs) || names.jobs == 0 ||
      names.jobs > spec::kMostHosts)
    return bad("expected a whole number >= 1");
  reading.facts.push_back(fact(input, "REGROUP_JOBS"));
  if (names.jobs == 1) return names;
  const std::size_t dash = own.rfind('-');
  if (dash == std::string_view::npos || !base::whole(own.substr(dash + 1), names.job) ||
      names.job >= names.jobs)
    return bad(fmt::format("{} does not end in the job's number, below this one, as in a JobSet",
                           base::printable_word(own)));
  names.before = own.substr(0, dash);
  return names;
}

// "train-3" is the fourth pod of "train"; the names of the others differ only in that number.
Result<Reading> read_indexed(const AllocInput& input) {
  Reading reading;
  const std::string counter = input.has("REGROUP_PODS") ? "REGROUP_PODS" : "PET_NNODES";
  std::uint32_t pods = 0, index = 0;
  if (!base::whole(input.value(counter), pods) || pods == 0 || pods > spec::kMostHosts) {
    return invalid_argument(fmt::format(
        "JOB_COMPLETION_INDEX is set, but {} does not give the number of pods: set REGROUP_PODS "
        "to spec.completions (docs/guide/allocators.md)",
        input.has(counter) ? fact(input, counter) : "REGROUP_PODS"));
  }
  if (!base::whole(input.value("JOB_COMPLETION_INDEX"), index) || index >= pods)
    return invalid_argument(fmt::format("{}: expected a number below {} ({})",
                                        fact(input, "JOB_COMPLETION_INDEX"), pods, counter));
  const std::string_view own =
      std::string_view(input.host_name).substr(0, input.host_name.find('.'));
  const std::size_t dash = own.rfind('-');
  if (dash == std::string_view::npos || own.substr(dash + 1) != input.value("JOB_COMPLETION_INDEX"))
    return invalid_argument(fmt::format(
        "host name {}: expected to end in -{}, as the host name of a pod of an Indexed Job",
        base::printable_word(own), input.value("JOB_COMPLETION_INDEX")));
  std::uint32_t slots = 1;
  if (input.has("PET_NPROC_PER_NODE") && base::whole(input.value("PET_NPROC_PER_NODE"), slots) &&
      slots > 0)
    reading.facts.push_back(fact(input, "PET_NPROC_PER_NODE"));
  const std::string& service = input.value("REGROUP_SUBDOMAIN");  // of the headless service
  REGROUP_ASSIGN_OR_RETURN(const auto names, pod_names(input, own.substr(0, dash), reading));
  if (std::uint64_t{names.jobs} * pods > spec::kMostHosts)
    return invalid_argument(fmt::format("{} jobs of {} pods: expected at most {} pods", names.jobs,
                                        pods, spec::kMostHosts));
  HostSum sum("JOB_COMPLETION_INDEX");
  for (std::uint32_t i = 0; i < names.jobs * pods; ++i) {
    const std::string pod = names.name(i / pods, i % pods);
    REGROUP_RETURN_IF_ERROR(sum.add_once(service.empty() ? pod : fmt::format("{}.{}", pod, service),
                                         std::max(1U, slots)));
    sum.hosts().back().address = pod;
    sum.hosts().back().here = i / pods == names.job && i % pods == index;
  }
  reading.facts.push_back(fact(input, "JOB_COMPLETION_INDEX"));
  reading.facts.push_back(fact(input, counter));
  reading.allocation.hosts = std::move(sum.hosts());
  reading.reach = {{"/bin/sh", "-c", kToPod, "kubectl"}, {}, "kubectl exec"};
  const std::string first = names.name(0, 0);
  std::vector<std::string> jobs;
  for (std::uint32_t job = 0; job < names.jobs; ++job) {
    const std::string pod = names.name(job, 0);
    jobs.push_back(pod.substr(0, pod.rfind('-')));
  }
  const std::string label = "--selector=batch.kubernetes.io/job-name";
  const std::vector<std::string> get = {"kubectl", "get", "pods", "--request-timeout=10s"};
  // A member that starts a job of its own is not one of the copies of this command.
  const bool launches = (index == 0 && names.job == 0) || input.has("REGROUP_JOB");
  if (launches) {
    reading.print_running = get;
    reading.print_running.insert(
        reading.print_running.end(),
        {"--output=name", "--field-selector=status.phase=Running",
         jobs.size() == 1 ? fmt::format("{}={}", label, jobs[0])
                          : fmt::format("{} in ({})", label, fmt::join(jobs, ","))});
    return reading;
  }
  reading.launched_by = first;
  reading.print_phases = get;
  reading.print_phases.insert(
      reading.print_phases.end(),
      {R"(--output=jsonpath={range .items[*]}{.status.phase}{"\n"}{end})",
       fmt::format("{}={},batch.kubernetes.io/job-completion-index=0", label, jobs[0])});
  return reading;
}

}  // namespace

Result<Reading> read_kubernetes(const AllocInput& input) {
  for (const char* name : kHostFiles) {
    if (input.has(name)) return read_mpi_operator(input, name);
  }
  return read_indexed(input);
}

Result<std::vector<Host>> read_discovered(std::string_view text, const std::string& source,
                                          std::uint32_t slots) {
  HostSum sum(source);
  std::size_t number = 0;
  for (std::string_view line; base::next_part(text, '\n', line);) {
    ++number;
    line = base::trimmed_word(line);
    if (line.empty()) continue;
    // An IPv6 address contains colons; slots follow it only after brackets.
    const std::size_t colon = spec::is_host_name(line) ? std::string_view::npos : line.rfind(':');
    std::uint32_t own = slots;
    if (colon != std::string_view::npos && !base::whole(line.substr(colon + 1), own))
      return invalid_argument(fmt::format("{}, line {}: '{}': expected HOST or HOST:SLOTS", source,
                                          number, base::printable_word(line)));
    std::string_view host = line.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    if (host.find_first_of(base::kBlanks) != std::string_view::npos)
      return invalid_argument(fmt::format("{}, line {}: '{}': expected HOST or HOST:SLOTS", source,
                                          number, base::printable_word(line)));
    const bool nobody = colon != std::string_view::npos && own == 0;
    if (nobody && spec::is_host_name(host)) continue;
    REGROUP_RETURN_IF_ERROR(sum.add_once(host, own));
  }
  return std::move(sum.hosts());
}

}  // namespace regroup::alloc
