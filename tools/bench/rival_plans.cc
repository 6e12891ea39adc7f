// The plan of each rival: Open MPI, MPICH, Gloo.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "base/status.h"
#include "tools/bench/embedded.h"
#include "tools/bench/rivals.h"

namespace regroup::bench {
namespace {

using base::Result;

constexpr const char* kSource = "rival_mpi.c";

std::string word_behind(const std::string& text, const std::string& mark) {
  const std::size_t found = text.find(mark);
  if (found == std::string::npos) return "";
  const std::size_t begin = text.find_first_not_of(' ', found + mark.size());
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_first_of(" \n", begin) - begin);
}

// Finds the programs of one baseline and builds its ranks' program.
class Planner {
 public:
  Planner(int ranks, const TemporaryFolder& folder, base::TimePoint deadline)
      : ranks_(ranks), folder_(folder), deadline_(deadline) {}

  Result<std::vector<RivalPlan>> plan(const Baseline& baseline) {
    if (baseline.name == "openmpi") return open_mpi(baseline.folder);
    if (baseline.name == "mpich") return mpich(baseline.folder);
    return gloo(baseline.folder);
  }

 private:
  // The path of a program in the baseline's folder, or its name if PATH is to be searched.
  static std::string in(const std::string& folder, const std::string& program) {
    return folder.empty() ? program : folder + "/" + program;
  }

  Result<std::string> run(const Words& command) {
    return output_of(command, folder_.path("output"), deadline_);
  }

  // In PATH the plain name is what the user means; in a folder the longer name cannot be that of
  // another MPI.
  static std::array<const char*, 2> ordered(const std::string& folder, const char* usual,
                                            const char* longer) {
    return folder.empty() ? std::array{usual, longer} : std::array{longer, usual};
  }

  // Finds the program in `folder` that has one of two names and prints one of two words for
  // `--version`.
  Result<std::string> find(const std::string& folder, const std::array<const char*, 2>& names,
                           const std::array<const char*, 2>& words, std::string& version) {
    std::string tried;
    for (const char* name : names) {
      auto output = run({in(folder, name), "--version"});
      if (output.ok() && (output->find(words[0]) != std::string::npos ||
                          output->find(words[1]) != std::string::npos)) {
        version = *output;
        return in(folder, name);
      }
      tried += (tried.empty() ? "" : " and no ") + in(folder, name);
    }
    return base::not_found(
        fmt::format("--compare: no {} of {} found; give its folder, for example openmpi=FOLDER",
                    tried, words[0]));
  }

  Result<std::string> compile(const std::string& mpicc) {
    const std::string program = folder_.path(fmt::format("rival-{}", built_++));
    REGROUP_RETURN_IF_ERROR(write_file(folder_.path("pattern.h"), kPatternHeader));
    REGROUP_RETURN_IF_ERROR(write_file(folder_.path("start_barrier.h"), kStartBarrierHeader));
    REGROUP_RETURN_IF_ERROR(write_file(folder_.path(kSource), kRivalMpi));
    REGROUP_RETURN_IF_ERROR(
        run({mpicc, "-O3", "-w", "-o", program, folder_.path(kSource)}).status());
    return program;
  }

  [[nodiscard]] bool crowded() const { return ranks_ > cores_of_programs(); }

  Result<std::vector<RivalPlan>> open_mpi(const std::string& folder) {
    std::string version;
    REGROUP_ASSIGN_OR_RETURN(auto mpirun, find(folder, ordered(folder, "mpirun", "mpirun.openmpi"),
                                               {"Open MPI", "OpenRTE"}, version));
    const std::string suffix = mpirun.ends_with(".openmpi") ? ".openmpi" : "";
    REGROUP_ASSIGN_OR_RETURN(auto program, compile(in(folder, "mpicc" + suffix)));
    version = word_behind(version, ")");
    Words launcher = {mpirun};
    if (::geteuid() == 0) launcher.emplace_back("--allow-run-as-root");
    if (crowded()) launcher.emplace_back("--oversubscribe");  // also makes waiting ranks yield
    launcher.insert(launcher.end(), {"-np", std::to_string(ranks_)});
    Words tuned = launcher;
    tuned.insert(tuned.end(), {"--mca", "coll_sm_priority", "100"});
    std::vector<RivalPlan> out;
    for (auto& [words, tuning] : {std::pair(launcher, ""), std::pair(tuned, ", coll sm")}) {
      Words command = words;
      command.insert(command.end(), {program, "SOCKET"});
      out.push_back({fmt::format("Open MPI {}{}", version, tuning), {command}});
    }
    return out;
  }

  Result<std::vector<RivalPlan>> mpich(const std::string& folder) {
    std::string version;
    REGROUP_ASSIGN_OR_RETURN(
        auto mpiexec, find(folder, {"mpiexec.hydra", "mpiexec"}, {"HYDRA", "MPICH"}, version));
    auto program = compile(in(folder, "mpicc.mpich"));
    if (!program.ok()) program = compile(in(folder, "mpicc"));
    if (!program.ok()) return program.status();
    return std::vector<RivalPlan>{{fmt::format("MPICH {}", word_behind(version, "Version:")),
                                   {{mpiexec, "-np", std::to_string(ranks_), *program, "SOCKET"}}}};
  }

  Result<std::vector<RivalPlan>> gloo(const std::string& folder) {
    const std::string python = in(folder, "python3");
    REGROUP_ASSIGN_OR_RETURN(
        auto version,
        run({python, "-c",
             "import torch, torch.distributed as d; d.is_gloo_available() or exit(1); "
             "print(torch.__version__)"}));
    const std::string script = folder_.path("rival_gloo.py");
    REGROUP_RETURN_IF_ERROR(write_file(script, kRivalGloo));
    RivalPlan plan{fmt::format("Gloo (torch {})", version.substr(version.rfind('\n') + 1)), {}};
    const std::string store = folder_.path(fmt::format("store-{}", built_++));
    for (int rank = 0; rank < ranks_; ++rank) {
      plan.commands.push_back(
          {python, script, "SOCKET", std::to_string(rank), std::to_string(ranks_), store});
    }
    return std::vector<RivalPlan>{std::move(plan)};
  }

  const int ranks_;
  const TemporaryFolder& folder_;
  const base::TimePoint deadline_;
  int built_ = 0;
};

}  // namespace

Result<std::vector<RivalPlan>> plan_rivals(const std::vector<Baseline>& baselines, int ranks,
                                           const TemporaryFolder& folder,
                                           base::TimePoint deadline) {
  Planner planner(ranks, folder, deadline);
  std::vector<RivalPlan> out;
  for (const Baseline& baseline : baselines) {
    REGROUP_ASSIGN_OR_RETURN(auto plans, planner.plan(baseline));
    out.insert(out.end(), plans.begin(), plans.end());
  }
  return out;
}

}  // namespace regroup::bench
