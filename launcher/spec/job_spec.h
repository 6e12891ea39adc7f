// The job that a command line (of regroup, mpirun, mpiexec, mpiexec.hydra or torchrun) and the
// files that it names describe, as plain data. launcher/cli writes it; all other folders only read
// it.
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
#include "proto/plane.h"

namespace regroup::spec {

// Information to print on standard output before the job starts.
struct Display {
  bool map = false;
  bool allocation = false;
  bool topology = false;
  bool bindings = false;  // on standard error (--report-bindings)
  bool operator==(const Display&) const = default;
};

// The effect of losing a member that its role cannot do without: the job ends, or restarts.
enum class RestartPolicy : std::uint8_t { kEnd, kRestart };

// The number of members that a job may have, over all its programs; 0: one per slot.
struct MemberRange {
  std::uint32_t min = 0;
  std::uint32_t max = 0;
  bool operator==(const MemberRange&) const = default;
};

struct JobSpec {
  // The programs of the command line or job file. Empty only if the parser could not read them.
  std::vector<AppRequest> apps;
  // Roles of --role or the job file: program i is role i; empty: a job without roles.
  std::vector<Role> roles;
  // --ps-memory: bytes of the tables of a parameter server, which is the role ps of the command
  // line and none of `roles`; 0: there is none.
  std::uint64_t ps_memory = 0;
  std::uint32_t ps_servers = 0;  // its count, or the least of --role ps=MIN:MAX
  std::uint32_t ps_most_servers = 0;
  std::uint32_t ps_hosts = 1;  // --ps-hosts: on how many of the job's hosts they and the tables are
  std::uint32_t ps_replicas = 1;  // --ps-replicas: how many of these have a copy of each range
  std::string job_file;           // --job
  std::string job_name;           // given in the job file
  Compat compat = Compat::kOpenMpi;

  // Members. min and max are the sum over all apps; 0: one member per slot.
  std::uint32_t min = 0;  // -np MIN:MAX; equal unless elastic
  std::uint32_t max = 0;
  bool elastic = false;
  std::uint32_t initial_size = 0;  // --initial-size; 0: min(MAX, slots)
  bool replace = true;             // replace lost members
  std::uint32_t spares = 0;        // warm members in addition
  std::uint32_t shards = 0;        // 0: smallest power of two >= MAX
  std::uint64_t seed = 0;
  bool any_fingerprint = false;       // --reproducible=off
  std::optional<proto::Plane> plane;  // --plane; empty: auto
  // Number of past results that each node keeps for learners, if the state has at least
  // `learner_state` bytes.
  std::uint32_t learner_steps = 8;
  std::uint64_t learner_state = 64 << 20;
  // Gradients of a member that memory of its GPU, which no member owns, has room for; 0: the host
  // has the leaves. Not given: as many as plane cuda needs if that is requested, else 0.
  std::optional<std::uint32_t> leaf_buffers;

  // Hosts and placement.
  std::vector<HostRequest> hosts;  // each once; empty: not given, this host alone
  // Names among `hosts` to which -H limits each program; an empty list: all. Empty: none is
  // limited.
  std::vector<std::vector<std::string>> hosts_of_apps;
  std::vector<std::string> ssh_command{"ssh"};  // the command that reaches a host; its name follows
  bool fork_agents = false;    // run all agents on this host, for trying things out
  bool by_ssh = false;         // the user requested ssh
  std::string allocator;       // --allocator; "": the first viable one, "none": this machine alone
  Grant grant;                 // the allocator's; `hosts` are among its hosts
  bool growable = false;       // other hosts may join later
  DiscoveryRequest discovery;  // the script that lists the hosts, instead of an allocator
  std::string agent_prefix;    // folder on other hosts that has bin/regroup; "": as on this host
  // Number of agents that an agent starts; 0: the controller starts all.
  std::optional<std::uint32_t> tree_radix;
  Mapping mapping;
  bool oversubscribe = false;
  // --nooversubscribe was given, even if it is the default (hydra).
  bool no_oversubscribe = false;
  Display display;
  bool do_not_launch = false;

  // Streams
  OutputRequest output;
  StdinRequest stdin_to;
  std::string usage_log;            // CSV file of the members' resource usage; "": none
  bool virtual_local_rank = false;  // LOCAL_RANK is 0, and each rank sees the one GPU of its number
  bool quiet = false;
  bool progress = false;  // print the progress of an elastic job on standard error
  bool verbose = false;   // print each start of a member with its processors, and each end

  // The end
  base::Duration timeout{};  // 0: none
  base::Duration min_members_timeout = std::chrono::seconds(60);
  base::Duration ready_timeout = std::chrono::seconds(300);
  HangRequest hang;
  base::Duration orphan_timeout = std::chrono::seconds(10);
  base::Duration term_grace = std::chrono::seconds(5);
  bool term_grace_given = false;  // the user gave term_grace
  NoticeRequest notice;
  // Time from a notice to the end; empty: the allocator's.
  std::optional<base::Duration> notice_grace;
  std::optional<std::vector<int>> notice_signals;   // empty: the allocator's
  std::optional<int> notice_status;                 // exit status of a job that a notice ended
  std::optional<std::vector<int>> forward_signals;  // empty: the default ones
  std::optional<std::uint32_t> max_restarts;
  RestartPolicy restart_policy = RestartPolicy::kEnd;
  // A lost member does not end the job (--enable-recovery, -disable-auto-cleanup).
  bool keep_going = false;
  bool ulfm = false;  // --with-ft ulfm
  bool print_exit_codes = false;
  std::string report_pid;  // "-": standard output, "+": standard error, else a file
  CheckpointRequest checkpoint;
  // The given options that only elastic jobs have, as written.
  std::vector<std::string> elastic_options;
  std::vector<std::string> world_options;  // the given options for jobs whose members join a World
  std::vector<std::string> notes;          // lines for standard error
  // The command of regroup that the program's name resembles; "": none.
  std::string like_command;

  Environment environment;  // of this process, unchanged

  // True if the job needs hosts other than this machine, or may get some.
  [[nodiscard]] bool several_hosts() const {
    return growable || std::any_of(hosts.begin(), hosts.end(),
                                   [](const HostRequest& host) { return !host.here; });
  }
};

inline constexpr int kHydraFailed = 255;  // hydra's exit status for a job that it refuses or ends

}  // namespace regroup::spec
