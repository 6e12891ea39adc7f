// The members' processes on this node: started, fed, listened to, signalled and reaped.
#pragma once

#include <utility>

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/status.h"
#include "core/world.h"
#include "launcher/containment/gpu_claims.h"
#include "launcher/containment/job_record.h"
#include "launcher/containment/limiter.h"
#include "launcher/supervise/app.h"
#include "launcher/supervise/environment.h"
#include "launcher/supervise/priority.h"
#include "launcher/supervise/sink.h"
#include "launcher/supervise/streams.h"
#include "launcher/usage/usage_meter.h"

namespace regroup::launcher {

// The words of a program for a message, the last ones left out where there are many.
[[nodiscard]] std::string shown(const App& app);

// What the members of a job have in common.
struct CrewOptions {
  std::vector<App> apps;
  std::string job;  // its id
  Master master;
  std::string agent_socket;  // "": a rigid job
  std::string world_socket;  // of a rigid job, where ranks join a World of fixed size; "": among themselves
  std::string
      exits_file;  // where such a job without `world_socket` tells which ranks have ended; "": nowhere
  OutputRequest output;
  StdinRequest stdin_to;
  Priority priority;
  MemoryPolicy memory = MemoryPolicy::kKernel;
  std::uint64_t open_files = 0;       // soft RLIMIT_NOFILE of members; 0: the agent's
  bool verbose = false;               // tell of each start and end of a member
  bool tell_exit_codes = false;       // at the end of the job, of all members
  bool quiet = false;                 // no warnings
  std::shared_ptr<JobRecord> record;  // may be none; gets to know of control groups
  ClaimScope claims;                  // of the GPUs that members are given
};

struct MemberExit {
  core::MemberId member = 0;
  std::uint32_t rank = 0;             // at its start
  pid_t pid = 0;                      // on its host
  int code = 0;                       // exit code, if it exited
  int signal = 0;                     // the signal that killed it, or 0
  std::uint64_t exceeded_memory = 0;  // its limit in bytes, if a process of it was killed for that; or 0
  std::string host;                   // "": this one

  [[nodiscard]] bool normal() const { return signal == 0 && code == 0; }
  // "(pid 4711)", "(pid 4711 on node2)".
  [[nodiscard]] std::string process() const;
  // As a shell reports it: the code, or 128 + signal.
  [[nodiscard]] int status() const { return signal != 0 ? 128 + signal : code; }
  // "was killed by signal 9 (SIGKILL)", "exited with code 7", or "was killed for using more than its 64 MiB
  // of memory".
  [[nodiscard]] std::string what() const;
};

// Used by the loop's thread.
class Crew {
 public:
  using ExitHandler = std::function<void(const MemberExit&)>;
  // `changed` is called when outputs_busy() may have become false.
  Crew(boost::asio::io_context& loop, CrewOptions options, Sink& out, Sink& err, ExitHandler exited,
       std::function<void()> changed);

  // Starts a member; streams.h says which ones get our standard input.
  [[nodiscard]] core::Status start(const Place& place, Extras extras = {});
  // To the process group of one member, or of all; false: there is no such living member.
  bool signal(core::MemberId member, int signal);
  void signal_all(int signal);
  // Takes the exit statuses that are there, of members and of orphans they left; SIGKILLs what is left of the
  // process group of a dead member.
  void reap();
  // The same, but only of members that are on their way out, and not of `but`; waits for those, 200 ms at
  // most.
  void reap_dying(core::MemberId but);
  // Members that were killed and hang in the kernel (dying.h) count as ended; says so.
  void leave_stuck();
  // As reap(), for a child that somebody else reaped.
  void reaped(pid_t pid, int status);
  // All writers are dead: forward what is in the pipes.
  void finish_outputs() { streams_.finish(); }
  // "exit codes, by member: 0:0 1:137", if that was asked for. To be called once all members are gone.
  void tell_exit_codes();

  // The program that members started later run under this number; an empty one when nobody does any more.
  void set_app(std::uint32_t number, App app);
  [[nodiscard]] const CrewOptions& options() const { return options_; }
  [[nodiscard]] std::size_t running() const { return running_.size(); }
  [[nodiscard]] bool outputs_busy() const { return streams_.busy(); }
  // Output was lost to a full disk or its like; that has been said.
  [[nodiscard]] bool output_lost() const { return streams_.lost(); }
  // The GPUs that this environment gives a member, for the job: all of them or none. kUnavailable: another
  // job has one, which the message names.
  [[nodiscard]] core::Status claim_gpus(const Environment& given);
  // Members that run, and where it is written what they use.
  [[nodiscard]] std::vector<UsageTarget> usage_targets() const;
  // Of a living member, or 0.
  [[nodiscard]] pid_t pid_of(core::MemberId member) const;

 private:
  struct Process {
    pid_t pid = 0;
    std::uint32_t rank = 0;
    std::vector<std::string> gpus;  // uuids of those it was given
  };

  void reap_child(pid_t pid, bool ours);
  void tell_start(const Place& place, const App& app, pid_t pid, const std::vector<int>& cores);
  [[nodiscard]] core::Status start_with(MemberPipes pipes, const Place& place, const Extras& extras);

  CrewOptions options_;
  Streams streams_;
  Sink& err_;
  ExitHandler exited_;
  Limiter limiter_;
  GpuClaims claims_;  // as long as the job
  std::map<core::MemberId, Process> running_;
  std::map<core::MemberId, MemberExit> exits_;  // kept only to be told
};

}  // namespace regroup::launcher
