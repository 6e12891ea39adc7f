// The job that a command line (of regroup, mpirun, mpiexec, mpiexec.hydra or torchrun) and the
// files that it names ask for, as plain data. launcher/cli writes it; all others read it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/spec/hosts.h"
#include "launcher/spec/mapping.h"
#include "launcher/spec/request.h"

namespace regroup::spec {

// What is printed on standard output before the job starts.
struct Display {
  bool map = false;
  bool allocation = false;
  bool topology = false;
  bool bindings = false;  // on standard error (--report-bindings)
  bool operator==(const Display&) const = default;
};

// What a lost member of a role does to the job, where its role cannot do without it.
enum class RestartPolicy : std::uint8_t { kEnd, kRestart };

// The members that a job may have, over all its programs; 0: one for each slot.
struct MemberRange {
  std::uint32_t min = 0;
  std::uint32_t max = 0;
  bool operator==(const MemberRange&) const = default;
};

struct JobSpec {
  // The programs, of the command line or of a job file. Empty only if the parser could not read
  // that.
  std::vector<AppRequest> apps;
  // Of --role or the job file: program i is role i; empty: a job without roles.
  std::vector<Role> roles;
  std::string job_file;  // --job
  std::string job_name;  // that a job file says
  Compat compat = Compat::kOpenMpi;

  // Members. min and max are the sum over all apps; 0: one member per slot.
  std::uint32_t min = 0;  // -np MIN:MAX; equal unless elastic
  std::uint32_t max = 0;
  bool elastic = false;
  std::uint32_t start = 0;  // 0: min(MAX, slots)
  bool replace = true;
  std::uint32_t spares = 0;  // warm members beyond those
  std::uint32_t shards = 0;  // 0: smallest power of two >= MAX
  std::uint64_t seed = 0;
  bool any_fingerprint = false;            // --reproducible=off
  std::uint32_t learner_steps = 8;         // past results that each node keeps for learners ...
  std::uint64_t learner_state = 64 << 20;  // ... where the state takes so many bytes or more

  // Where they run.
  std::vector<HostRequest> hosts;               // each once; empty: not said, this one alone
  std::vector<std::string> ssh_command{"ssh"};  // reaches a host when its name is appended
  bool fork_agents = false;                     // all run on this one: to try things out
  bool by_ssh = false;                          // the user said so
  std::string allocator;       // --allocator; "": whoever is there, "none": this machine alone
  Grant grant;                 // of it; `hosts` are among its hosts
  bool growable = false;       // other hosts may come, although none is needed now
  DiscoveryRequest discovery;  // names the hosts, in place of the allocator
  std::string agent_prefix;    // under which bin/regroup is there, where it is; "": as here
  std::optional<std::uint32_t> tree_radix;  // agents that one starts; 0: all are started from here
  Mapping mapping;
  bool oversubscribe = false;
  // --nooversubscribe was said, also where it is the default (hydra).
  bool no_oversubscribe = false;
  Display display;
  bool do_not_launch = false;

  // Streams
  OutputRequest output;
  StdinRequest stdin_to;
  std::string usage_log;  // CSV of what members use; "": none
  bool quiet = false;
  bool verbose = false;  // tell what is started, with which processors, and how it ended

  // The end
  base::Duration timeout{};  // 0: none
  base::Duration wait = std::chrono::seconds(60);
  base::Duration ready_timeout = std::chrono::seconds(300);
  HungRequest hung;
  base::Duration orphan_timeout = std::chrono::seconds(10);
  base::Duration term_grace = std::chrono::seconds(5);
  bool term_grace_said = false;
  NoticeRequest notice;
  // From a notice to the end; none: as the allocator has it.
  std::optional<base::Duration> notice_grace;
  std::optional<std::vector<int>> notice_signals;   // in place of those that the allocator has
  std::optional<int> notice_status;                 // exit status of a job that a notice ended
  std::optional<std::vector<int>> forward_signals;  // in place of the default ones
  std::optional<std::uint32_t> max_restarts;
  RestartPolicy restart_policy = RestartPolicy::kEnd;
  // A lost member does not end the job (--enable-recovery, -disable-auto-cleanup).
  bool keep_going = false;
  bool ulfm = false;  // --with-ft ulfm
  bool print_exit_codes = false;
  std::string report_pid;  // "-": standard output, "+": standard error, else a file
  CheckpointRequest checkpoint;
  // Those given that only an elastic job has, as they were written.
  std::vector<std::string> elastic_options;
  std::vector<std::string> world_options;  // likewise, those of any World whose members join
  std::vector<std::string> notes;          // a line each, for standard error
  // The command of regroup that the first word, a program, resembles; "": none.
  std::string like_command;

  Environment environment;  // of this process, unchanged

  // Others than this machine are needed, or may come.
  [[nodiscard]] bool several_hosts() const {
    return growable || std::any_of(hosts.begin(), hosts.end(),
                                   [](const HostRequest& host) { return !host.here; });
  }
};

inline constexpr int kHydraFailed = 255;  // exit status of all that hydra refuses, or ends itself

}  // namespace regroup::spec
