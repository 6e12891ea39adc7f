// The agent: the process that serves this node. It owns the members' processes and streams; what should
// happen to the job is decided by an AgentJob.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/clock.h"
#include "core/fd.h"
#include "core/message.h"
#include "core/status.h"
#include "launcher/supervise/agent_job.h"
#include "launcher/supervise/control_message.h"
#include "launcher/supervise/environment.h"
#include "launcher/supervise/process_table.h"
#include "launcher/supervise/signals.h"
#include "launcher/supervise/sink.h"
#include "launcher/usage/usage_reporter.h"

namespace regroup::launcher {

inline constexpr int kStartFailed = 213;  // as Open MPI 5
inline constexpr int kTimedOut = 241;     // as Open MPI 5

struct AgentOptions {
  ProcessTableOptions processes;
  HeldPort port;  // MASTER_PORT, kept free until the members start
  core::Duration term_grace = std::chrono::seconds(5);
  core::Duration teardown_limit = std::chrono::seconds(10);  // of a killed member: then it is left behind
  core::Duration timeout{}, spent{};      // of the whole job (0: none); what of it has passed
  int stopped_status = 1;                 // the job's exit status when a signal to the guardian ended it ...
  std::optional<int> notice_status = {};  // ... if it was none of SIGINT, SIGQUIT and SIGHUP, or a notice did
  std::function<void()> noticed = {};     // called once, when that has happened: there may be no time later
  int timeout_status = kTimedOut;
  int start_failed_status = kStartFailed;
  UsageOptions usage = {};  // of the members on this node
};

[[nodiscard]] std::string ran_too_long(core::Duration timeout);  // what the user is told then
class Agent {
 public:
  // `loop` may have run before.
  Agent(boost::asio::io_context& loop, AgentOptions options, core::Fd guardian, const JobFactory& job);
  // Serves until the job is over; the exit status of this process. Call once.
  [[nodiscard]] int run();

  [[nodiscard]] boost::asio::io_context& loop() { return loop_; }
  [[nodiscard]] ProcessTable& processes() { return processes_; }
  [[nodiscard]] Sink& out() { return *out_; }
  [[nodiscard]] Sink& err() { return err_; }
  // Members have been started: one of them may now take MASTER_PORT.
  void release_port() { options_.port.socket.reset(); }
  void say(const std::string& text);  // "regroup: TEXT" on standard error, between the members' lines
  // Ends the job: SIGTERM to all, SIGKILL after `grace`, or term_grace. The first call fixes the exit status.
  void terminate(int exit_status, std::optional<core::Duration> grace = std::nullopt);
  void end_within(int exit_status, core::Duration within);  // others end the members; SIGKILL if they do not
  // All members have ended by themselves: what they have left to do for the job has no deadline.
  void end(int exit_status);
  // This host, and with it the job, is lost after `within`, if that is known.
  void on_notice(std::optional<core::Duration> within);
  void fail_start(const std::string& why);  // of a member: says so, and ends the job at once
  void kill(int exit_status);               // ends the job at once
  // To those here. Who hangs in the kernel behind a SIGKILL is not waited for.
  void signal_members(int signal);
  // So, as no member has the state; `resumed`: where the job began; hosts whose members may live on a while.
  void kill_stateless(int exit_status, int doubtful_hosts, std::uint64_t resumed);
  // What members of another host use: usage_reporter.h.
  void add_usage(const std::string& host, const std::string& json, const UsageReporter::Lives& lives) {
    if (usage_) usage_->add(host, json, lives);
  }
  // A member has ended, here or elsewhere.
  void on_member_exit(const MemberExit& exit);
  void look_whether_over() { finish_if_over(); }  // other hosts were lost, perhaps with the last members
  // Once it is over: what it told the guardian; whether a signal or a notice had asked for it.
  [[nodiscard]] int exit_status() const { return exit_status_.value_or(1); }
  [[nodiscard]] bool noticed() const { return noticed_; }
  // Nothing is decided any more: the job is being ended.
  [[nodiscard]] bool ending() const { return exit_status_.has_value(); }

 private:
  void on_control_message(ControlMessage message, std::int32_t value, core::Fd fd);
  [[nodiscard]] bool any_lives() const;
  [[nodiscard]] int unless_completed(int exit_status) const;
  void settle();
  void on_guardian_lost();
  void signal_all(int signal);
  [[nodiscard]] core::Status report_usage();
  void start_timer(boost::asio::steady_timer& timer, core::Duration after, std::function<void()> then);
  void finish_if_over();
  void limit_drain(core::Duration limit);
  void watch_killed();
  void start_drain_timer();
  void clear_up();
  void leave_if_drained();
  void leave();

  AgentOptions options_;
  boost::asio::io_context& loop_;
  std::unique_ptr<Sink> out_;
  std::unique_ptr<Sink> separate_err_;  // unless it is the same file
  Sink& err_;
  ProcessTable processes_;
  SignalReader signals_;
  ControlSocket guardian_;
  boost::asio::steady_timer grace_{loop_}, killed_{loop_};
  boost::asio::steady_timer timeout_{loop_}, orphan_{loop_}, drain_{loop_};
  std::unique_ptr<UsageReporter> usage_;  // none: nobody wants to know
  std::unique_ptr<AgentJob> job_;
  std::optional<int> exit_status_;
  std::optional<core::Duration> drain_limit_;  // from the members' end on; none: until all is written
  bool finishing_ = false, cleared_ = false, leaving_ = false, noticed_ = false;
  bool asked_ = false;      // somebody outside wants the end, and nothing had failed
  bool abandoned_ = false;  // output that nobody takes is waited for no more
};

}  // namespace regroup::launcher
