// Finds the launcher that started this process as one of several ranks (mpirun, mpiexec, srun,
// torchrun ...) by the environment variables that it sets. docs/design/fixed_size_worlds.md. Pure.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"

namespace regroup::elastic {

// A launch of more than one rank by another launcher, with this process as one of them.
struct DetectedLaunch {
  std::string by;  // "mpirun", for messages
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::string key;        // equal on all ranks of the launch, and on no others of this host
  std::string seen;       // "OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=2", for messages
  bool one_host = false;  // all ranks run on this host
  pid_t rank_joined = 0;  // an ancestor that is the same rank and has joined; 0: none
  // How to recognise the processes of the other ranks.
  std::string rank_variable;                     // holds a process's rank
  std::map<std::string, std::string> variables;  // their values, equal in all ranks
  pid_t starter = 0;                             // the process that started this rank; 0: hidden
  bool by_launcher = false;                      // that process starts all ranks
};

// An ancestor of this process.
struct Ancestor {
  pid_t pid = 0;
  std::string start;                               // start time as in /proc; "": hidden
  std::string name;                                // of its program, at most 15 bytes
  std::map<std::string, std::string> environment;  // as it was started; empty if that is hidden
  bool joined = false;                             // it maps an arena
};

// The value of a variable of this process, or "".
using Variable = std::function<std::string(const std::string& name)>;

// Finds the launch of this process. `ancestors`: its parent first. Empty if it was started alone,
// or by regroup, whose agent knows the other ranks (REGROUP_AGENT). kInvalidArgument: the variables
// contradict each other.
[[nodiscard]] base::Result<std::optional<DetectedLaunch>> find_launch(
    const Variable& variable, const std::vector<Ancestor>& ancestors);

// The ancestor of the same rank that has joined a World of fixed size through its agent; 0: none.
[[nodiscard]] pid_t rank_above(const Variable& variable, const std::vector<Ancestor>& ancestors);

// A descendant of the launcher.
struct Descendant {
  pid_t pid = 0;
  pid_t parent = 0;
  bool ended = false;                              // a zombie
  std::map<std::string, std::string> environment;  // as it was started; empty if that is hidden
};

// The ranks of a launch as seen in the processes of this host.
struct RankScan {
  // Whether ranks that were never seen have been started, since a process may hide its rank or not
  // have run its program yet. kSoon: every living child of the launcher is a known rank. kAll: it
  // also has as many children as there are ranks.
  enum class Started : std::uint8_t { kUnknown, kSoon, kAll };
  std::map<std::uint32_t, pid_t> living;  // rank -> the first of its processes
  std::set<pid_t> processes;              // all living ones
  bool hidden = false;                    // the environment of one of them cannot be read
  Started started = Started::kUnknown;
  // Rank -> its process, which ended with status 0, as the launcher says.
  std::map<std::uint32_t, pid_t> ended_well;
};

// Pure. `processes`: the descendants of launch.starter.
[[nodiscard]] RankScan scan_ranks(const DetectedLaunch& launch,
                                  const std::vector<Descendant>& processes);

// Pure. `text`: the contents of the file REGROUP_RANK_EXITS, a line "RANK PID" for each rank that
// ended with status 0.
[[nodiscard]] RankScan parse_exits(const std::string& text);

// The descendants of `of`.
[[nodiscard]] std::vector<Descendant> read_descendants(pid_t of);

// The ancestors of this process, up to the first that belongs to another user or cannot be read.
[[nodiscard]] std::vector<Ancestor> read_ancestors();

}  // namespace regroup::elastic
