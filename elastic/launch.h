// Which launcher started this process together with others: mpirun, mpiexec, srun, torchrun and their like
// tell each rank by variables. docs/design/fixed_size_worlds.md. Pure.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/status.h"

namespace regroup::elastic {

// This process as one of the ranks of a launch, of which there is more than one.
struct Launch {
  std::string by;  // "mpirun", for messages
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::string key;        // equal on all ranks of the launch, and on no others of this host
  std::string seen;       // "OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=2", for messages
  bool one_host = false;  // all ranks run on this host
  pid_t rank_joined = 0;  // the process of this rank that has joined, and started this one; 0: there is none
  // How the processes of the other ranks are known.
  std::string rank_variable;                     // holds a process's rank
  std::map<std::string, std::string> variables;  // have these values in each rank
  pid_t starter = 0;                             // the process that started this rank; 0: it is hidden
  bool by_launcher = false;                      // that process is known to start all ranks
};

// A process above this one.
struct Ancestor {
  pid_t pid = 0;
  std::string start;                               // time of its start, as /proc has it; "" if that is hidden
  std::string name;                                // of its program, 15 bytes at most
  std::map<std::string, std::string> environment;  // as it was started; empty if that is hidden
  bool joined = false;                             // it maps an arena
};

// The value of a variable of this process, or "".
using Variable = std::function<std::string(const std::string& name)>;

// `ancestors`: this process's parent first. Nothing: this process was started alone, or by regroup, whose
// agent knows the others (REGROUP_AGENT). kInvalidArgument: the variables contradict each other.
[[nodiscard]] core::Result<std::optional<Launch>> find_launch(const Variable& variable,
                                                              const std::vector<Ancestor>& ancestors);

// The process of the same rank that started this one and has joined through its agent, of a World of fixed
// size; 0: there is none.
[[nodiscard]] pid_t rank_above(const Variable& variable, const std::vector<Ancestor>& ancestors);

// A process that another one has started.
struct Descendant {
  pid_t pid = 0, parent = 0;
  bool ended = false;                              // and its parent has not asked for its status
  std::map<std::string, std::string> environment;  // as it was started; empty if that is hidden
};

// What a look at the processes of this host tells of the ranks of a launch.
struct RankScan {
  // Whether a rank that was never seen has been started: a process may hide its rank, or not have run its
  // program yet. kSoon: each living child of the launcher is known to be a rank. kAll: it has as many
  // children as ranks, too.
  enum class Started : std::uint8_t { kUnknown, kSoon, kAll };
  std::map<std::uint32_t, pid_t> living;  // rank -> the first of its processes
  std::set<pid_t> processes;              // that live, of any kind
  bool hidden = false;                    // one of them cannot be looked at
  Started started = Started::kUnknown;
  std::map<std::uint32_t, pid_t>
      left;  // rank -> its process, which ended with status 0, as the launcher says
};

// Pure. `processes`: those that launch.starter and its descendants have started.
[[nodiscard]] RankScan scan_ranks(const Launch& launch, const std::vector<Descendant>& processes);

// Pure. `text`: what the launcher has written to REGROUP_RANK_EXITS, a line "RANK PID" for each rank that has
// ended with status 0.
[[nodiscard]] RankScan parse_exits(const std::string& text);

// The processes that `of` and its descendants have started.
[[nodiscard]] std::vector<Descendant> read_descendants(pid_t of);

// The processes above this one, up to the first that belongs to another user or cannot be looked at.
[[nodiscard]] std::vector<Ancestor> read_ancestors();

}  // namespace regroup::elastic
