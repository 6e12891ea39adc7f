// Parses the allocation that an allocator gives to a job: pure functions of the environment and of
// the files that it names.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "launcher/alloc/allocator.h"
#include "launcher/spec/request.h"

namespace regroup::alloc {

struct AllocInput {
  spec::Environment environment;
  std::string host_name;  // this machine's
  std::function<base::Result<std::string>(const std::string& path)> read_file;
  // Runs a command and returns its output; kDeadlineExceeded, or an error that says how it ended.
  // Only Flux needs it.
  std::function<base::Result<std::string>(const std::vector<std::string>& command)> run;

  // The value of a variable; "" if it is not set.
  [[nodiscard]] const std::string& value(const std::string& name) const;
  [[nodiscard]] bool has(const std::string& name) const { return !value(name).empty(); }
};

// The command that starts an agent on a host: the words `before`, the host's address, the words
// `after`, then a shell command.
struct Reach {
  std::vector<std::string> before;
  std::vector<std::string> after;
  std::string title = {};  // name for the user, instead of a long `before`
  bool operator==(const Reach&) const = default;
};

struct Reading {
  Allocation allocation;
  std::string id;                     // the allocator's id of the job; "": none
  std::vector<std::string> facts;     // the sources used: "SLURM_JOB_NODELIST=n[1-3]"
  std::vector<std::string> warnings;  // sentences: which sources disagree, and which one is used
  Reach reach;                        // how to start agents; empty: by ssh
  std::string growth = {};            // in place of AllocatorRow::growth
  // The host whose copy of this command launches the job, and what prints the phases of its pods;
  // "": this process launches it.
  std::string launched_by = {};
  std::vector<std::string> print_phases = {};
  // Prints "pod/ADDRESS-RANDOM" for each host whose pod runs; empty: all hosts are there.
  std::vector<std::string> print_running = {};
};

// Collects hosts in the order in which they are first named. Checks that names have a bounded
// length and no control characters.
class HostSum {
 public:
  explicit HostSum(std::string source) : source_(std::move(source)) {}
  // Adds slots to the host `name`. kInvalidArgument: not a host name, or too many slots.
  [[nodiscard]] base::Status add(std::string_view name, std::uint64_t slots);
  // As add(); kInvalidArgument also if the host was named before.
  [[nodiscard]] base::Status add_once(std::string_view name, std::uint64_t slots);
  [[nodiscard]] Host* find(std::string_view name);
  [[nodiscard]] std::uint64_t slots() const { return slots_; }
  [[nodiscard]] std::vector<Host>& hosts() { return hosts_; }
  // Sets Host::here on the host called `name`; a short and a full name match.
  void mark_here(std::string_view name);

 private:
  [[nodiscard]] base::Status append(std::string_view name, std::uint64_t slots);
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  const std::string source_;  // variable or file, for messages
  std::vector<Host> hosts_;
  std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> index_;
  std::uint64_t slots_ = 0;
};

// "NAME=value" for a message; a long value is cut.
[[nodiscard]] std::string fact(const AllocInput& input, const std::string& name);
// The content of the file that variable `name` names; errors name both.
[[nodiscard]] base::Result<std::string> read_named_file(const AllocInput& input,
                                                        const std::string& name);
// Adds a warning if variable `name` is set and its number is not `found`.
void check_count(const AllocInput& input, const std::string& name, std::uint64_t found,
                 const std::string& believed, Reading& reading);

// Parses LSF's "hA 2 hB 4" in variable `name`, which errors name.
[[nodiscard]] base::Status add_pairs(const AllocInput& input, const std::string& name,
                                     HostSum& sum);

// The reader of each allocator. Errors name the variable, or file and line, and the fault.
[[nodiscard]] base::Result<Reading> read_slurm(const AllocInput& input);
[[nodiscard]] base::Result<Reading> read_lsf(const AllocInput& input);
[[nodiscard]] base::Result<Reading> read_pbs(const AllocInput& input);
[[nodiscard]] base::Result<Reading> read_grid_engine(const AllocInput& input);
[[nodiscard]] base::Result<Reading> read_flux(const AllocInput& input);
[[nodiscard]] base::Result<Reading> read_kubernetes(const AllocInput& input);

// The time between an allocator's notice (a signal) and its kill.
struct Grace {
  base::Duration host{};  // for processes on a host that is taken away
  base::Duration head{};  // for the process that the job's script has started
  std::string source;     // "GraceTime of partition low"
};
// The grace time of each allocator; those of Slurm, Grid Engine and Kubernetes run a command. An
// error says why it is unknown.
[[nodiscard]] base::Result<Grace> slurm_grace(const AllocInput& input);
[[nodiscard]] base::Result<Grace> lsf_grace(const AllocInput& input);
[[nodiscard]] base::Result<Grace> pbs_grace(const AllocInput& input);
[[nodiscard]] base::Result<Grace> grid_engine_grace(const AllocInput& input);
[[nodiscard]] base::Result<Grace> flux_grace(const AllocInput& input);
[[nodiscard]] base::Result<Grace> kubernetes_grace(const AllocInput& input);

// Parses the output of a host discovery script: lines "HOST" or "HOST:SLOTS", as for Horovod; a
// line without a number means `slots`. Empty output means no hosts. `source` names the script in
// errors.
[[nodiscard]] base::Result<std::vector<Host>> read_discovered(std::string_view text,
                                                              const std::string& source,
                                                              std::uint32_t slots);

}  // namespace regroup::alloc
