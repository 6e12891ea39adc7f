// Parses what an allocator gives to a job: pure functions of the environment and of the files that
// it names.
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
  std::string host_name;  // of this machine
  std::function<base::Result<std::string>(const std::string& path)> read_file;
  // What a command prints; kDeadlineExceeded, or a status that says how it ended. Only Flux needs
  // one.
  std::function<base::Result<std::string>(const std::vector<std::string>& command)> run;

  // "" if it is not set.
  [[nodiscard]] const std::string& value(const std::string& name) const;
  [[nodiscard]] bool has(const std::string& name) const { return !value(name).empty(); }
};

// How an agent gets to a host: `before`, the host's address, `after`, and then a shell.
struct Reach {
  std::vector<std::string> before, after;
  std::string title = {};  // shown instead of a long `before`
  bool operator==(const Reach&) const = default;
};

struct Reading {
  Allocation allocation;
  std::string id;                     // the job's number there; "": it has none
  std::vector<std::string> facts;     // "SLURM_JOB_NODELIST=n[1-3]": what was believed
  std::vector<std::string> warnings;  // sentences: which sources disagree, and which one is used
  Reach reach;                        // empty: ssh
};

// Hosts in the order in which they are first named. Host names are bounded and hold no control
// characters.
class HostSum {
 public:
  explicit HostSum(std::string source) : source_(std::move(source)) {}
  // Slots of a host that is named again add up. kInvalidArgument: no name of a host, or too many
  // slots.
  [[nodiscard]] base::Status add(std::string_view name, std::uint64_t slots);
  // kInvalidArgument: it is named already.
  [[nodiscard]] base::Status add_once(std::string_view name, std::uint64_t slots);
  [[nodiscard]] Host* find(std::string_view name);
  [[nodiscard]] std::uint64_t slots() const { return slots_; }
  [[nodiscard]] std::vector<Host>& hosts() { return hosts_; }
  // Marks the one that is `name`, or the short form of one of the two names.
  void mark_here(std::string_view name);

 private:
  [[nodiscard]] base::Status append(std::string_view name, std::uint64_t slots);
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  const std::string source_;  // what names the hosts, for messages
  std::vector<Host> hosts_;
  std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> index_;
  std::uint64_t slots_ = 0;
};

// "NAME=value" for a message, a long value cut.
[[nodiscard]] std::string fact(const AllocInput& input, const std::string& name);
// The file that variable `name` names; the error names both.
[[nodiscard]] base::Result<std::string> read_named_file(const AllocInput& input,
                                                        const std::string& name);
// A line for `warnings`, if `name` is set and its number is not `found`.
void check_count(const AllocInput& input, const std::string& name, std::uint64_t found,
                 const std::string& believed, Reading& reading);

// LSF's "hA 2 hB 4" in variable `name`; the error names it.
[[nodiscard]] base::Status add_pairs(const AllocInput& input, const std::string& name,
                                     HostSum& sum);

// One of each allocator. Each error names the variable, or file and line, and what is wrong.
[[nodiscard]] base::Result<Reading> read_slurm(const AllocInput& input);
[[nodiscard]] base::Result<Reading> read_lsf(const AllocInput& input);
[[nodiscard]] base::Result<Reading> read_pbs(const AllocInput& input);
[[nodiscard]] base::Result<Reading> read_grid_engine(const AllocInput& input);
[[nodiscard]] base::Result<Reading> read_flux(const AllocInput& input);
[[nodiscard]] base::Result<Reading> read_kubernetes(const AllocInput& input);

// How long it is from the allocator's word to the end.
struct Grace {
  base::Duration host{};  // of a host, or of an agent's step
  base::Duration head{};  // of the process that the job's script has started
  std::string source;     // "GraceTime of partition low"
};
// One of each allocator; those of Slurm, Grid Engine and Kubernetes run a command. An error says
// why it is not known.
[[nodiscard]] base::Result<Grace> slurm_grace(const AllocInput& input);
[[nodiscard]] base::Result<Grace> lsf_grace(const AllocInput& input);
[[nodiscard]] base::Result<Grace> pbs_grace(const AllocInput& input);
[[nodiscard]] base::Result<Grace> grid_engine_grace(const AllocInput& input);
[[nodiscard]] base::Result<Grace> flux_grace(const AllocInput& input);
[[nodiscard]] base::Result<Grace> kubernetes_grace(const AllocInput& input);

// What a discovery script printed: "HOST" or "HOST:SLOTS" a line, as Horovod has it; `slots` where
// a line says none. No line at all is no host, which is no error. `source` names the script in
// errors.
[[nodiscard]] base::Result<std::vector<Host>> read_discovered(std::string_view text,
                                                              const std::string& source,
                                                              std::uint32_t slots);

}  // namespace regroup::alloc
