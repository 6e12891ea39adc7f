// The processes of the members on this host: starts, signals and reaps them, and connects their
// streams.
#pragma once

#include <utility>

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/metrics/usage_meter.h"
#include "launcher/process/app.h"
#include "launcher/process/environment.h"
#include "launcher/process/gpu_claims.h"
#include "launcher/process/job_record.h"
#include "launcher/process/limiter.h"
#include "launcher/process/priority.h"
#include "launcher/process/sink.h"
#include "launcher/process/streams.h"
#include "proto/world.h"

namespace regroup::process {

// The command line of a program for a message, with quotes as a shell needs them, cut after 200
// characters and at the end of its first line.
[[nodiscard]] std::string shown(const App& app);

// Settings that all members of a job share.
struct ProcessTableOptions {
  std::vector<App> apps;
  std::string job;  // its id
  Master master;
  std::string agent_socket;  // "": a fixed-size job
  // For a fixed-size job: the socket where ranks join their World; "": they join without an agent.
  std::string world_socket;
  std::string
      exits_file;  // for a fixed-size job: file that lists the ranks that have ended; "": none
  spec::OutputRequest output;
  spec::StdinRequest stdin_to;
  Priority priority;
  spec::MemoryPolicy memory = spec::MemoryPolicy::kKernel;
  std::uint64_t open_files = 0;       // soft RLIMIT_NOFILE of members; 0: the agent's
  bool verbose = false;               // print each start and end of a member
  bool tell_exit_codes = false;       // print the exit codes of all members at the end of the job
  bool quiet = false;                 // no warnings
  std::shared_ptr<JobRecord> record;  // may be none; records the job's control groups
  ClaimScope claims;                  // of the GPUs that members are given
};

struct MemberExit {
  proto::MemberId member = 0;
  std::uint32_t rank = 0;  // at its start
  pid_t pid = 0;           // on its host
  int code = 0;            // exit code, if it exited
  int signal = 0;          // the signal that killed it, or 0
  // The memory limit in bytes, if a process of the member was killed for exceeding it; or 0.
  std::uint64_t exceeded_memory = 0;
  std::string host;  // "": this one

  [[nodiscard]] bool normal() const { return signal == 0 && code == 0; }
  // "(pid 4711)", "(pid 4711 on node2)".
  [[nodiscard]] std::string process() const;
  // As a shell reports it: the code, or 128 + signal.
  [[nodiscard]] int status() const { return signal != 0 ? 128 + signal : code; }
  // "was killed by signal 9 (SIGKILL)", "exited with code 7", or "was killed for using more than
  // its 64 MiB of memory".
  [[nodiscard]] std::string what() const;
};

// Used by the loop's thread. Handlers are called from the loop.
class ProcessTable {
 public:
  using ExitHandler = std::function<void(const MemberExit&)>;
  // `changed` is called when outputs_busy() may have become false.
  ProcessTable(boost::asio::io_context& loop, ProcessTableOptions options, Sink& out, Sink& err,
               ExitHandler exited, std::function<void()> changed);

  // Starts a member. Streams::open() says which members get our standard input. Blocks until
  // execve().
  [[nodiscard]] base::Status start(const Place& place, Extras extras = {});
  // Sends a signal to the process group of one member, or of all. False: the member does not run.
  bool signal(proto::MemberId member, int signal);
  void signal_all(int signal);
  // Reaps all children that have ended, members and orphans that members left, without blocking.
  // SIGKILLs the rest of a dead member's process group.
  void reap();
  // Reaps the members that are exiting, except `but`. Waits for them, 200 ms at most.
  void reap_exiting(proto::MemberId but);
  // Reports members that were killed and hang in the kernel (stuck_process.h) as ended, with a
  // message.
  void leave_stuck();
  // As reap(), for a child that was reaped elsewhere.
  void reaped(pid_t pid, int status);
  // All members are dead: forwards what is left in the pipes.
  void finish_outputs() { streams_.finish(); }
  // Prints "exit codes, by member: 0:0 1:137" if the options want it. Call when all members have
  // ended.
  void tell_exit_codes();

  // Sets program `number` for members that are started from now on; an empty App: no more will be.
  void set_app(std::uint32_t number, App app);
  [[nodiscard]] const ProcessTableOptions& options() const { return options_; }
  [[nodiscard]] std::size_t running() const { return running_.size(); }
  [[nodiscard]] bool outputs_busy() const { return streams_.busy(); }
  // Output was lost, on a full disk for example; a message has been printed.
  [[nodiscard]] bool output_lost() const { return streams_.lost(); }
  // Claims for this job the GPUs that `given` assigns to a member: all of them or none.
  // kUnavailable: another job has claimed one, which the message names.
  [[nodiscard]] base::Status claim_gpus(const spec::Environment& given);
  // The running members, with the sources of their resource usage.
  [[nodiscard]] std::vector<metrics::UsageTarget> usage_targets() const;
  // The pid of a running member, or 0.
  [[nodiscard]] pid_t pid_of(proto::MemberId member) const;

 private:
  struct Process {
    pid_t pid = 0;
    std::uint32_t rank = 0;
    std::vector<std::string> gpus;  // UUIDs of its GPUs
  };

  void reap_child(pid_t pid, bool ours);
  void tell_start(const Place& place, const App& app, pid_t pid, const std::vector<int>& cores);
  [[nodiscard]] base::Status start_with(MemberPipes pipes, const Place& place,
                                        const Extras& extras);

  ProcessTableOptions options_;
  Streams streams_;
  Sink& err_;
  ExitHandler exited_;
  Limiter limiter_;
  GpuClaims claims_;  // held until the job ends
  std::map<proto::MemberId, Process> running_;
  std::map<proto::MemberId, MemberExit> exits_;  // for tell_exit_codes()
};

}  // namespace regroup::process
