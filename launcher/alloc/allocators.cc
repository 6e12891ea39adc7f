// The table of allocators. Flux and Kubernetes come first, because they run within others.
#include "launcher/alloc/allocators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace regroup::alloc {
namespace {

Viability wants(const AllocInput& input, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (!input.has(name)) return {false, fmt::format("{} is not set", name)};
  }
  return {true, fmt::format("{} set", fmt::join(names, ", "))};
}

Viability flux_viable(const AllocInput& input) { return wants(input, {"FLUX_URI"}); }
// The id alone is not enough: a shell may have inherited it without being part of the job.
Viability wants_hosts(const AllocInput& input, const char* id,
                      std::initializer_list<const char*> names) {
  Viability found = wants(input, {id});
  if (!found.ok || std::ranges::any_of(names, [&](const char* name) { return input.has(name); }))
    return found;
  return {false, fmt::format("{} is set, but no variable contains hosts ({})", id,
                             fmt::join(names, ", "))};
}

Viability slurm_viable(const AllocInput& input) {
  return wants_hosts(input, "SLURM_JOB_ID",
                     {"SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST"});
}
Viability pbs_viable(const AllocInput& input) {
  return wants_hosts(input, "PBS_JOBID", {"PBS_NODEFILE"});
}
Viability grid_engine_viable(const AllocInput& input) {
  return wants(input, {"JOB_ID", "PE_HOSTFILE"});
}

Viability lsf_viable(const AllocInput& input) {
  return wants_hosts(input, "LSB_JOBID", {"LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE", "LSB_HOSTS"});
}

Viability kubernetes_viable(const AllocInput& input) {
  Viability found = wants(input, {"KUBERNETES_SERVICE_HOST"});
  if (!found.ok) return found;
  for (const char* name : {"OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile",
                           "I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE"}) {
    if (input.has(name)) return {true, fmt::format("{} is set", name)};
  }
  // A pod whose job's tasks do not know each other is not an allocation.
  if (input.has("JOB_COMPLETION_INDEX") && (input.has("REGROUP_PODS") || input.has("PET_NNODES")))
    return {true, "JOB_COMPLETION_INDEX is set"};
  return {
      false,
      "neither a host file of the MPI Operator nor JOB_COMPLETION_INDEX with REGROUP_PODS is set"};
}

const char* const kByJobs =
    "grows by further jobs that run `regroup join`, which also return their hosts";
const char* const kSlurmJobs =
    "grows by further jobs that run `regroup join` (`regroup resize` submits one by sbatch); "
    "returns hosts "
    "by scontrol";
const char* const kByBresize =
    "grows by further jobs that run `regroup join` and, as does `regroup resize`, by bresize, "
    "which also "
    "returns hosts and slots";

}  // namespace

const std::vector<AllocatorRow>& allocators() {
  static const std::vector<AllocatorRow> kRows = {
      {"flux", "Flux", flux_viable, read_flux, "does not grow", flux_grace},
      {"kubernetes", "Kubernetes", kubernetes_viable, read_kubernetes, "does not grow",
       kubernetes_grace},
      {"slurm", "Slurm", slurm_viable, read_slurm, kSlurmJobs, slurm_grace, slurm_grow,
       slurm_give_back, slurm_cancel, slurm_requests},
      {"lsf", "LSF", lsf_viable, read_lsf, kByBresize, lsf_grace, lsf_grow, lsf_give_back,
       lsf_cancel, nullptr, true},
      {"pbs", "PBS", pbs_viable, read_pbs, kByJobs, pbs_grace},
      {"gridengine", "Grid Engine", grid_engine_viable, read_grid_engine, kByJobs,
       grid_engine_grace},
  };
  return kRows;
}

const AllocatorRow* find_allocator(const AllocInput& input, std::string_view name) {
  for (const AllocatorRow& row : allocators()) {
    if (name.empty() ? row.viable(input).ok : name == row.name) return &row;
  }
  return nullptr;
}

base::Result<Granted> find_allocation(const AllocInput& input, std::string_view name) {
  if (name == "none") return Granted{};
  for (const AllocatorRow& row : allocators()) {
    if (!name.empty() && name != row.name) continue;
    const Viability viable = row.viable(input);
    if (!viable.ok && name.empty()) continue;
    if (!viable.ok)
      return base::unavailable(fmt::format("--allocator {}: {}", name, viable.reason));
    auto reading = row.read(input);
    if (!reading.ok()) {
      return base::Status(reading.code(),
                          fmt::format("{}: {} (--allocator none uses only this machine)", row.title,
                                      reading.status().message()));
    }
    return Granted{&row, std::move(*reading)};
  }
  if (name.empty()) return Granted{};
  std::vector<std::string_view> known;
  for (const AllocatorRow& row : allocators()) known.emplace_back(row.name);
  return base::invalid_argument(
      fmt::format("--allocator {}: unknown; expected none, {}", name, fmt::join(known, ", ")));
}

std::string allocation_text(const AllocInput& input, const Granted& granted) {
  if (granted.by == nullptr) {
    std::string out = "no allocator: only this machine\n";
    for (const AllocatorRow& row : allocators())
      out += fmt::format("  not {}: {}\n", row.title, row.viable(input).reason);
    return out;
  }
  const Reading& reading = granted.reading;
  const std::vector<Host>& hosts = reading.allocation.hosts;
  std::string out = fmt::format(
      "{}{}: {}, {}\n", granted.by->title, reading.id.empty() ? "" : " job " + reading.id,
      base::counted(hosts.size(), "host"), base::counted(reading.allocation.slots(), "slot"));
  for (const std::string& fact : reading.facts) out += fmt::format("  from {}\n", fact);
  for (const std::string& warning : reading.warnings) out += fmt::format("  note: {}\n", warning);
  const std::vector<std::string> before =
      reading.reach.before.empty() ? std::vector<std::string>{"ssh"} : reading.reach.before;
  const std::string& title = reading.reach.title;
  out += fmt::format("  agents by {} HOST{}{}\n",
                     title.empty() ? fmt::format("{}", fmt::join(before, " ")) : title,
                     reading.reach.after.empty() ? "" : " ", fmt::join(reading.reach.after, " "));
  out += fmt::format("  {}\n", reading.growth.empty() ? granted.by->growth : reading.growth);
  if (!reading.launched_by.empty())
    out += fmt::format("  host {} launches jobs; this one serves them\n", reading.launched_by);
  for (const Host& host : hosts) {
    out += fmt::format("{} slots={}", host.name, host.slots);
    if (!host.cores.empty()) out += fmt::format(" cores={}", fmt::join(host.cores, ","));
    if (!host.gpus.empty()) out += fmt::format(" gpus={}", fmt::join(host.gpus, ","));
    if (host.gpus.empty() && host.gpu_count > 0)
      out += fmt::format(" gpus={} (numbers unknown)", host.gpu_count);
    out += host.here ? " (this host)\n" : "\n";
  }
  return out;
}

std::string allocation_json(const Granted& granted) {
  using nlohmann::json;
  const Reading& reading = granted.reading;
  json hosts = json::array();
  for (const Host& host : reading.allocation.hosts) {
    hosts.push_back({{"name", host.name},
                     {"slots", host.slots},
                     {"cores", host.cores},
                     {"gpus", host.gpus},
                     {"gpu_count", host.gpu_count},
                     {"here", host.here}});
  }
  json out = {{"allocator", granted.by != nullptr ? granted.by->name : "none"},
              {"job", reading.id},
              {"number", reading.allocation.number},
              {"slots", reading.allocation.slots()},
              {"facts", reading.facts},
              {"warnings", reading.warnings},
              {"hosts", std::move(hosts)}};
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace regroup::alloc
