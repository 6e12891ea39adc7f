// Each launcher is one row of a table. If the variables of several launchers are set, one launcher
// was started within the other: variables that the inner launcher's process has inherited belong to
// the outer launcher and do not count.
#include "elastic/detected_launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>

namespace regroup::elastic {
namespace {

using base::Result;

constexpr const char* kAgent = "REGROUP_AGENT";
constexpr const char* kRole = "regroup --role";

enum class Where : std::uint8_t {
  kLocalSize,
  kNodes,
  kMaster
};  // how a row shows whether all ranks run on this host

struct Row {
  const char* by;
  std::vector<const char*> needs;  // the row counts only if these are set
  const char* rank;
  const char* size;
  const char* place;  // number of ranks on this host, of hosts, or the address of rank 0
  Where where;
  std::vector<const char*> ids;       // of the launch
  std::vector<const char*> programs;  // that start ranks
  bool by_process;                    // the ids are not unique: add the process that starts ranks
};

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = {
      {"torchrun",
       {"TORCHELASTIC_RUN_ID"},
       "RANK",
       "WORLD_SIZE",
       "LOCAL_WORLD_SIZE",
       Where::kLocalSize,
       {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"},
       {"torchrun"},
       false},
      {kRole,
       {"REGROUP_JOB", "REGROUP_ROLE"},
       "REGROUP_ROLE_RANK",
       "REGROUP_ROLE_SIZE",
       "REGROUP_ROLE_LOCAL_SIZE",
       Where::kLocalSize,
       {"REGROUP_JOB", "REGROUP_ROLE"},
       {"regroup-agent"},
       false},
      {"mpirun",
       {},
       "OMPI_COMM_WORLD_RANK",
       "OMPI_COMM_WORLD_SIZE",
       "OMPI_COMM_WORLD_LOCAL_SIZE",
       Where::kLocalSize,
       {"PMIX_NAMESPACE", "REGROUP_JOB"},
       {"mpirun", "mpirun.openmpi", "mpiexec", "mpiexec.openmpi", "orterun", "orted", "prterun",
        "prted", "regroup-agent"},
       true},
      {"mpiexec",
       {"MPI_LOCALNRANKS"},
       "PMI_RANK",
       "PMI_SIZE",
       "MPI_LOCALNRANKS",
       Where::kLocalSize,
       {"PMI_JOBID"},
       {"hydra_pmi_proxy", "pmi_proxy", "hydra_bstrap_pr"},
       true},
      {"mpirun_rsh",
       {},
       "MV2_COMM_WORLD_RANK",
       "MV2_COMM_WORLD_SIZE",
       "MV2_COMM_WORLD_LOCAL_SIZE",
       Where::kLocalSize,
       {"MPISPAWN_ID", "PMI_JOBID"},
       {"mpispawn"},
       true},
      {"srun",
       {"SLURM_STEP_ID"},
       "SLURM_PROCID",
       "SLURM_STEP_NUM_TASKS",
       "SLURM_STEP_NUM_NODES",
       Where::kNodes,
       {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_HET_GROUP_ID", "SLURM_RESTART_COUNT"},
       {"slurmstepd"},
       false},
      {"flux",
       {"FLUX_JOB_ID"},
       "FLUX_TASK_RANK",
       "FLUX_JOB_SIZE",
       "FLUX_JOB_NNODES",
       Where::kNodes,
       {"FLUX_JOB_ID"},
       {"flux-shell"},
       false},
      {"jsrun",
       {},
       "JSM_NAMESPACE_RANK",
       "JSM_NAMESPACE_SIZE",
       "JSM_NAMESPACE_LOCAL_SIZE",
       Where::kLocalSize,
       {"JSM_NAMESPACE_ID", "LSB_JOBID"},
       {"jsmd"},
       true},
      {"horovodrun",
       {},
       "HOROVOD_RANK",
       "HOROVOD_SIZE",
       "HOROVOD_LOCAL_SIZE",
       Where::kLocalSize,
       {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"},
       {"horovodrun"},
       true},
      {"a PMI launcher", {}, "PMI_RANK", "PMI_SIZE", "", Where::kNodes, {"PMI_JOBID"}, {}, true},
      {"a launcher that sets RANK and WORLD_SIZE",
       {"MASTER_ADDR"},
       "RANK",
       "WORLD_SIZE",
       "MASTER_ADDR",
       Where::kMaster,
       {"MASTER_ADDR", "MASTER_PORT"},
       {},
       false},
  };
  return kRows;
}

// Launchers that set a rank but no size: prterun, Cray's aprun and PALS, gforker.
constexpr const char* kRanksAlone[] = {"PMIX_RANK", "PALS_RANKID", "ALPS_APP_PE", "PMI_FORK_RANK"};

std::optional<std::uint32_t> number(const std::string& text) {
  std::uint32_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end ? std::optional(value) : std::nullopt;
}

// The shell of salloc, a batch script and node preparation are steps with reserved numbers.
bool is_step_of_srun(const std::string& step) {
  constexpr std::uint32_t kFirstReserved = 0xfffffff0;
  const auto id = number(step);
  return id && *id < kFirstReserved;
}

bool counts(const Row& row, const Variable& variable) {
  const auto is_set = [&](const char* name) { return !variable(name).empty(); };
  if (!is_set(row.rank) || !is_set(row.size) || !std::ranges::all_of(row.needs, is_set))
    return false;
  const std::string_view by = row.by;
  // A rank of regroup -np N has the variables of torchrun, too.
  if (by == "torchrun" && variable("TORCHELASTIC_RUN_ID") == variable("REGROUP_JOB")) return false;
  return by != "srun" || is_step_of_srun(variable("SLURM_STEP_ID"));
}

bool starts_ranks(const Row& row, const Ancestor& process) {
  return std::ranges::any_of(row.programs, [&](const char* name) { return process.name == name; });
}

// The nearest process above this one that is known to start ranks.
std::vector<Ancestor>::const_iterator nearest_launcher(const std::vector<Ancestor>& ancestors) {
  return std::ranges::find_if(ancestors, [](const Ancestor& process) {
    return std::ranges::any_of(rows(), [&](const Row& row) { return starts_ranks(row, process); });
  });
}

template <class Process>  // Ancestor or Descendant
std::string value_in(const Process& process, const std::string& name) {
  const auto found = process.environment.find(name);
  return found == process.environment.end() ? "" : found->second;
}

// True if `process` has this process's rank, size and launch.
bool is_same_rank(const Row& row, const Variable& variable, const Ancestor& process) {
  const auto same = [&](const char* name) { return value_in(process, name) == variable(name); };
  return same(row.rank) && same(row.size) && std::ranges::all_of(row.ids, same);
}

// True if the row's variables were set before the nearest launcher, of another kind, started this
// process.
bool is_outer(const Row& row, const Variable& variable, const std::vector<Ancestor>& ancestors) {
  const auto inner = nearest_launcher(ancestors);
  return inner != ancestors.end() && !starts_ranks(row, *inner) &&
         is_same_rank(row, variable, *inner);
}

// True if a member of an elastic job, or a rank of regroup, started this launch.
bool is_inside_member(const Row& row, const Variable& variable,
                      const std::vector<Ancestor>& ancestors) {
  return row.where != Where::kMaster &&
         std::ranges::any_of(ancestors, [&](const Ancestor& process) {
           return value_in(process, kAgent) == variable(kAgent) &&
                  !is_same_rank(row, variable, process);
         });
}

// One past the last process of this rank: the process that started the rank, if it is visible.
std::vector<Ancestor>::const_iterator end_of_rank(const Row& row, const Variable& variable,
                                                  const std::vector<Ancestor>& ancestors) {
  return std::ranges::find_if(ancestors, [&](const Ancestor& process) {
    return starts_ranks(row, process) || !is_same_rank(row, variable, process);
  });
}

bool all_here(const Row& row, const Variable& variable, std::uint32_t size) {
  const std::string place = variable(row.place);
  switch (row.where) {
    case Where::kLocalSize:
      return number(place) == size;
    case Where::kNodes:
      return number(place) == 1;
    case Where::kMaster:
      return place == "localhost" || place == "::1" || place.starts_with("127.");
  }
  return false;
}

std::string seen(const Row& row, const Variable& variable) {
  std::vector<std::string> names{row.rank, row.size, row.place};
  names.insert(names.end(), row.needs.begin(), row.needs.end());
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool told = std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i),
                                names[i]) != names.begin() + static_cast<std::ptrdiff_t>(i);
    if (told || variable(names[i]).empty()) continue;
    out += fmt::format("{}{}={}", out.empty() ? "" : ", ", names[i], variable(names[i]));
  }
  return out;
}

Result<DetectedLaunch> launch_by(const Row& row, const Variable& variable,
                                 const std::vector<Ancestor>& ancestors) {
  DetectedLaunch out;
  const std::string space = variable("PMIX_NAMESPACE");
  const bool ours =
      !variable("REGROUP_JOB").empty() && (space.empty() || space.starts_with("regroup-"));
  out.by = std::string_view(row.by) == "mpirun" && ours ? "regroup" : row.by;
  out.seen = seen(row, variable);
  const auto rank = number(variable(row.rank)), size = number(variable(row.size));
  if (!rank || !size || *rank >= *size)
    return base::invalid_argument(fmt::format(
        "join: {} contradict each other: expected a rank below the number of ranks", out.seen));
  out.rank = *rank;
  out.size = *size;
  out.one_host = all_here(row, variable, *size);
  out.key = fmt::format("{}/{}/{}", row.by, ::geteuid(), *size);
  for (const char* id : row.ids) out.key += fmt::format("/{}", variable(id));
  const auto end = end_of_rank(row, variable, ancestors);
  if (row.by_process && end != ancestors.end())
    out.key += fmt::format("/{}@{}", end->pid, end->start);
  const auto joined =
      std::find_if(ancestors.begin(), end, [](const auto& process) { return process.joined; });
  if (joined != end) out.rank_joined = joined->pid;
  out.rank_variable = row.rank;
  out.variables[row.size] = variable(row.size);
  for (const char* id : row.ids) out.variables[id] = variable(id);
  if (end != ancestors.end()) {
    out.starter = end->pid;
    out.by_launcher = starts_ranks(row, *end);
  }
  return out;
}

}  // namespace

pid_t rank_above(const Variable& variable, const std::vector<Ancestor>& ancestors) {
  const auto joined = std::ranges::find_if(ancestors, [&](const Ancestor& process) {
    return process.joined && value_in(process, kAgent) == variable(kAgent) &&
           value_in(process, "REGROUP_MEMBER") == variable("REGROUP_MEMBER");
  });
  return joined == ancestors.end() ? 0 : joined->pid;
}

Result<std::optional<DetectedLaunch>> find_launch(const Variable& variable,
                                                  const std::vector<Ancestor>& ancestors) {
  const bool member = !variable(kAgent).empty();
  for (const Row& row : rows()) {
    if (!counts(row, variable) || is_outer(row, variable, ancestors)) continue;
    if (number(variable(row.size)) == 1) {
      if (row.by == kRole)
        return std::optional<DetectedLaunch>();  // what follows counts other roles
      continue;
    }
    if (member && !is_inside_member(row, variable, ancestors)) continue;
    REGROUP_ASSIGN_OR_RETURN(auto launch, launch_by(row, variable, ancestors));
    return std::optional(std::move(launch));
  }
  if (member) return std::optional<DetectedLaunch>();
  for (const char* name : kRanksAlone) {
    if (number(variable(name)).value_or(0) == 0) continue;
    return base::invalid_argument(fmt::format(
        "join: {}={} marks this process as one of several ranks, but no variable gives their "
        "number. Start them with regroup -np N, mpirun, srun or torchrun; REGROUP_WORLD=alone "
        "makes a World of this process alone",
        name, variable(name)));
  }
  return std::optional<DetectedLaunch>();
}

RankScan scan_ranks(const DetectedLaunch& launch, const std::vector<Descendant>& processes) {
  using Started = RankScan::Started;
  RankScan out;
  std::uint32_t children = 0;
  bool all_known = launch.by_launcher;
  for (const Descendant& process : processes) {
    const bool is_child = process.parent == launch.starter;
    children += is_child ? 1 : 0;
    if (process.ended) continue;
    out.processes.insert(process.pid);
    out.hidden = out.hidden || process.environment.empty();
    const bool is_rank = std::ranges::all_of(
        launch.variables, [&](const auto& e) { return value_in(process, e.first) == e.second; });
    const auto rank = is_rank ? number(value_in(process, launch.rank_variable)) : std::nullopt;
    if (rank) out.living.emplace(*rank, process.pid);
    all_known = all_known && (rank || !is_child);
  }
  if (all_known) out.started = children >= launch.size ? Started::kAll : Started::kSoon;
  return out;
}

RankScan parse_exits(const std::string& text) {
  RankScan out;
  std::istringstream lines(text);
  std::uint32_t rank = 0;
  pid_t pid = 0;
  while (lines >> rank >> pid) out.ended_well.emplace(rank, pid);
  return out;
}

}  // namespace regroup::elastic
