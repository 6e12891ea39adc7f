// From what was asked for and what there is to what runs: one decision, made once for each launch
// of a job, before any of its members starts. docs/design/launch_path.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/alloc/allocator.h"
#include "launcher/job/option_rules.h"
#include "launcher/job/rank_layout.h"
#include "launcher/placement/cluster_view.h"
#include "launcher/placement/members.h"
#include "launcher/process/app.h"

namespace regroup::job {

// Why a job does not run, and the exit status of the launcher that tells so: as Open MPI 5 has it,
// or hydra with --compat=mpich.
struct Refusal {
  int exit_status = 1;
  std::string message;
  std::string notes = {};  // ResolvedJob::notes, where the job was refused after them
};

// All that was read before the decision.
struct Inventory {
  using Program = std::variant<process::App, Refusal>;  // or why it cannot be run
  std::string here;              // the name of this host; "": the job has no other one
  alloc::Allocation allocation;  // in the order of the options, or this host alone. Without hosts:
                                 // they come while the job runs
  std::vector<std::uint32_t> cores = {};  // by host: slots that have a core, its quota heeded
  std::vector<placement::ClusterHost> hosts = {};  // the same hosts as the placement needs them
  std::vector<Program> programs = {};
};

// The members of a job whose slots are known.
struct Members {
  std::uint32_t min = 0;  // over all programs; equal unless the job is elastic
  std::uint32_t max = 0;
  std::uint32_t start = 0;            // how many an elastic job starts with
  std::uint32_t shards = 0;           // V of its World
  std::vector<std::uint32_t> counts;  // of each program
  std::vector<std::string> notes;     // a line each, for standard error
};

struct ResolvedJob {
  std::vector<process::App> apps;
  Members members;
  std::string notes;  // lines on options that the job does not heed, for standard error; or ""
  std::uint32_t slots = 0;  // of all hosts: slots_for()
  // The rest is empty where hosts come while the job runs.
  std::vector<std::uint32_t> counts;   // of each program: members that were placed
  placement::PlacedJob placed;         // by rank
  std::vector<JobHost> hosts;          // 0 is this one, whether members run on it or not
  std::vector<std::uint32_t> host_of;  // by rank: its number in `hosts`
  std::vector<std::uint32_t> threads;  // by rank: OMP_NUM_THREADS

  // True: a rank of that host gets standard input.
  [[nodiscard]] bool reads_input(const spec::StdinRequest& input, std::uint32_t host) const;
};

// Decides how many members the job has, and on which hosts, cores and devices they run. Reads only
// the fabric that --fabric names.
[[nodiscard]] std::variant<ResolvedJob, Refusal> resolve(const spec::JobSpec& spec,
                                                         const Inventory& inventory);

// The members of a job on `slots` slots, unless its -H or host file says how many there are.
// `asked`: what members_of() says. kInvalidArgument: they do not fit, or the options contradict
// themselves. Pure.
[[nodiscard]] base::Result<Members> fit_to_slots(const spec::JobSpec& spec, spec::MemberRange asked,
                                                 std::uint32_t slots);

// Decides for a host that comes while an elastic job runs which cores and devices its members get;
// the number of its GPUs limits their number, which is `slots` at most. Errors name the host.
[[nodiscard]] base::Result<placement::PlacedJob> resolve_host(const spec::JobSpec& spec,
                                                              const spec::HostRequest& host,
                                                              std::uint32_t slots,
                                                              placement::HostInventory inventory);

// What members of roles need; of a job without roles nothing but what the options say.
[[nodiscard]] placement::MemberNeeds needs_of(const spec::JobSpec& spec);

// Slots of the arena of each host of an elastic job of at most `members` members, spares among
// them.
[[nodiscard]] std::uint32_t arena_slots(std::uint32_t members);

// The exit status of a job whose members cannot be placed: as Open MPI 5 has it.
[[nodiscard]] int placing_failed(const spec::JobSpec& spec);

}  // namespace regroup::job
