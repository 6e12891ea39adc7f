// sbatch(1) and srun(1), "OUTPUT ENVIRONMENT VARIABLES", Slurm 22.05 to 25.11. Under srun, uses the
// step's variables, since the job's may name hosts that the step does not have.
#include <fmt/format.h>

#include <algorithm>

#include "base/status.h"
#include "base/text.h"
#include "launcher/alloc/reading.h"
#include "launcher/spec/host_list.h"

namespace regroup::alloc {
namespace {

using base::invalid_argument;
using base::Result;
using base::Status;

struct SlurmNames {
  std::string hosts, tasks, number;  // of tasks
};

SlurmNames names_of(const AllocInput& input) {
  if (input.has("SLURM_STEP_NODELIST") && input.has("SLURM_PROCID"))
    return {"SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS"};
  return {input.has("SLURM_JOB_NODELIST") ? "SLURM_JOB_NODELIST" : "SLURM_NODELIST",
          "SLURM_TASKS_PER_NODE", "SLURM_NTASKS"};
}

// "2(x3),1": a number for each host, in the order of hosts.
Result<std::vector<std::uint32_t>> read_counts(const AllocInput& input, const std::string& name,
                                               std::size_t hosts) {
  std::vector<std::uint32_t> out;
  const auto bad = [&](std::string_view piece, std::string_view why) {
    return invalid_argument(
        fmt::format("{}: '{}': {}", fact(input, name), base::printable_word(piece), why));
  };
  for (std::string_view rest = input.value(name), piece; base::next_part(rest, ',', piece);) {
    std::uint32_t count = 0;
    std::size_t times = 1;
    const std::size_t open = piece.find("(x");
    bool good = base::whole(piece.substr(0, open), count);
    if (good && open != std::string_view::npos)
      good = piece.ends_with(')') &&
             base::whole(piece.substr(open + 2, piece.size() - open - 3), times);
    if (!good) return bad(piece, "expected N or N(xTIMES)");
    if (times > hosts - std::min(hosts, out.size()))
      return bad(piece, fmt::format("counts more hosts than the {} of the host list", hosts));
    out.insert(out.end(), times, count);
  }
  if (out.size() != hosts)
    return bad("", fmt::format("got {} counts for {} hosts", out.size(), hosts));
  return out;
}

// Slots: the tasks; if unknown, the processors divided by the processors per task.
Result<std::vector<std::uint32_t>> slots_of(const AllocInput& input, const SlurmNames& names,
                                            std::size_t hosts, Reading& reading) {
  if (input.has(names.tasks)) {
    reading.facts.push_back(fact(input, names.tasks));
    return read_counts(input, names.tasks, hosts);
  }
  const std::string cpus = "SLURM_JOB_CPUS_PER_NODE";
  if (!input.has(cpus))
    return invalid_argument(
        fmt::format("{}, but neither {} nor {} gives the number of members per host",
                    fact(input, names.hosts), names.tasks, cpus));
  reading.facts.push_back(fact(input, cpus));
  auto counts = read_counts(input, cpus, hosts);
  std::uint32_t each = 1;
  if (!counts.ok() || !input.has("SLURM_CPUS_PER_TASK")) return counts;
  if (!base::whole(input.value("SLURM_CPUS_PER_TASK"), each) || each == 0)
    return invalid_argument(
        fmt::format("{}: expected a whole number >= 1", fact(input, "SLURM_CPUS_PER_TASK")));
  reading.facts.push_back(fact(input, "SLURM_CPUS_PER_TASK"));
  for (std::uint32_t& count : *counts) count = std::max(1U, count / each);
  return counts;
}

// TASKS_PER_NODE is rounded up: 2(x3) for five tasks.
Status cap_slots(const AllocInput& input, const SlurmNames& names, Reading& reading) {
  if (!input.has(names.number)) return {};
  std::uint64_t tasks = 0;
  if (!base::whole(input.value(names.number), tasks) || tasks == 0)
    return invalid_argument(
        fmt::format("{}: expected a whole number >= 1", fact(input, names.number)));
  const std::uint64_t slots = reading.allocation.slots();
  if (slots < tasks) {
    reading.warnings.push_back(fmt::format("{}, but {} has room for {}: using {}",
                                           fact(input, names.number), names.tasks, slots,
                                           names.tasks));
  } else if (slots > tasks) {
    reading.facts.push_back(fact(input, names.number));
  }
  std::uint64_t over = slots > tasks ? slots - tasks : 0;
  for (auto host = reading.allocation.hosts.rbegin();
       host != reading.allocation.hosts.rend() && over > 0; ++host) {
    const auto less = static_cast<std::uint32_t>(std::min<std::uint64_t>(over, host->slots));
    host->slots -= less;
    over -= less;
  }
  return {};
}

// The GPU numbers of this host. Of other hosts Slurm gives only the count, and only if GPUs were
// requested per host.
void add_gpus(const AllocInput& input, Reading& reading) {
  std::uint32_t each = 0;
  const std::string& per_node = input.value("SLURM_GPUS_PER_NODE");  // "4", "v100:2"
  if (base::whole(std::string_view(per_node).substr(per_node.rfind(':') + 1), each))
    reading.facts.push_back(fact(input, "SLURM_GPUS_PER_NODE"));
  const std::string ids = input.has("SLURM_STEP_GPUS") ? "SLURM_STEP_GPUS" : "SLURM_JOB_GPUS";
  const auto numbers = spec::expand_numbers(input.value(ids));
  for (Host& host : reading.allocation.hosts) {
    host.gpu_count = each;
    if (!host.here || !numbers.ok() || numbers->empty()) continue;
    reading.facts.push_back(fact(input, ids));
    for (const int number : *numbers) host.gpus.push_back(std::to_string(number));
    host.gpu_count = static_cast<std::uint32_t>(host.gpus.size());
  }
}

// `srun -n 4 regroup ...` would start four launchers, each with a job of its own.
void tell_of_copies(const AllocInput& input, Reading& reading) {
  std::uint32_t task = 0;
  std::uint32_t tasks = 0;
  const bool numbered = base::whole(input.value("SLURM_PROCID"), task) &&
                        base::whole(input.value("SLURM_STEP_NUM_TASKS"), tasks);
  if (!numbered || task == 0 || task >= tasks) return;
  reading.warnings.push_back(fmt::format(
      "srun started {} launchers, and this is number {}: each starts a job of its own; start one, "
      "without srun or by srun --ntasks=1",
      tasks, task + 1));
}

}  // namespace

Result<Reading> read_slurm(const AllocInput& input) {
  Reading reading;
  reading.id = input.value("SLURM_JOB_ID");
  const SlurmNames names = names_of(input);
  auto hosts = spec::expand_host_list(input.value(names.hosts));
  if (!hosts.ok())
    return invalid_argument(fmt::format("{}: {}", names.hosts, hosts.status().message()));
  if (hosts->empty())
    return invalid_argument(
        fmt::format("SLURM_JOB_ID is set, but {} contains no host", names.hosts));
  reading.facts.push_back(fact(input, names.hosts));
  REGROUP_ASSIGN_OR_RETURN(auto slots, slots_of(input, names, hosts->size(), reading));
  HostSum sum(names.hosts);
  for (std::size_t i = 0; i < hosts->size(); ++i)
    REGROUP_RETURN_IF_ERROR(sum.add_once((*hosts)[i], slots[i]));
  sum.mark_here(input.has("SLURMD_NODENAME") ? input.value("SLURMD_NODENAME") : input.host_name);
  reading.allocation.hosts = std::move(sum.hosts());
  if (names.hosts != "SLURM_STEP_NODELIST")
    check_count(input, "SLURM_JOB_NUM_NODES", hosts->size(), names.hosts, reading);
  REGROUP_RETURN_IF_ERROR(cap_slots(input, names, reading));
  add_gpus(input, reading);
  tell_of_copies(input, reading);
  // --overlap: share the host with the script's other steps. -K0 and --no-kill: Slurm must not end
  // the step when a host or agent is lost; the controller handles that.
  reading.reach.before = {
      "srun",       "--jobid=" + reading.id, "--overlap", "--no-kill",  "-K0",
      "--mpi=none", "--ntasks-per-node=1",   "--nodes=1", "--ntasks=1", "--nodelist"};
  return reading;
}

}  // namespace regroup::alloc
