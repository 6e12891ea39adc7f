// The agent: the process that serves this host. It owns the processes and streams of the members;
// an AgentJob decides what happens to the job.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launcher/agent/agent_job.h"
#include "launcher/agent/control_message.h"
#include "launcher/metrics/usage_reporter.h"
#include "launcher/process/environment.h"
#include "launcher/process/process_table.h"
#include "launcher/process/signals.h"
#include "launcher/process/sink.h"
#include "proto/message.h"

namespace regroup::agent {

inline constexpr int kStartFailed = 213;  // as Open MPI 5
inline constexpr int kTimedOut = 241;     // as Open MPI 5

struct AgentOptions {
  process::ProcessTableOptions processes;
  process::HeldPort port;  // MASTER_PORT, kept free until the members start
  base::Duration term_grace = std::chrono::seconds(5);
  // From SIGKILL until a stuck member is left behind.
  base::Duration teardown_limit = std::chrono::seconds(10);
  base::Duration timeout{};  // limit of the whole job; 0: none
  base::Duration spent{};    // part of it that has passed already
  int stopped_status = 1;  // exit status if SIGINT, SIGQUIT or SIGHUP to the guardian ended the job
  // Exit status if another signal to the guardian or a notice did; empty: stopped_status.
  std::optional<int> notice_status = {};
  // Called once when such a signal or notice arrives: there may be no time later.
  std::function<void()> noticed = {};
  int timeout_status = kTimedOut;
  int start_failed_status = kStartFailed;
  metrics::UsageOptions usage = {};  // of the members on this host
  // A progress line that is drawn on standard error by another process; or null.
  std::shared_ptr<process::TerminalLine> line = {};
};

[[nodiscard]] std::string ran_too_long(base::Duration timeout);  // the message for the user
class Agent {
 public:
  // `loop` may have run before.
  Agent(boost::asio::io_context& loop, AgentOptions options, base::Fd guardian,
        const JobFactory& job);
  // Serves until the job is over; returns the exit status of this process. Call once.
  [[nodiscard]] int run();

  [[nodiscard]] boost::asio::io_context& loop() { return loop_; }
  [[nodiscard]] process::ProcessTable& processes() { return processes_; }
  [[nodiscard]] process::Sink& out() { return *out_; }
  [[nodiscard]] process::Sink& err() { return err_; }
  // Releases MASTER_PORT, since members have been started and one of them may bind it.
  void release_port() { options_.port.socket.reset(); }
  // Prints "regroup: TEXT" on standard error, between whole lines of members.
  void say(const std::string& text);
  // Ends the job: SIGTERM to all, SIGKILL after `grace`, or term_grace. The first call fixes the
  // exit status.
  void terminate(int exit_status, std::optional<base::Duration> grace = std::nullopt);
  // The members are being ended; SIGKILL after `within`.
  void end_within(int exit_status, base::Duration within);
  // All members have ended by themselves; output that is left may take any time.
  void end(int exit_status);
  // A preemption notice: this host, and with it the job, is lost after `within`, if that is known.
  void on_notice(std::optional<base::Duration> within);
  // A member could not be started: prints `why` and ends the job at once.
  void fail_start(const std::string& why);
  // The same, of members whose program or folder may be missing: with Open MPI's status for that,
  // if its rules hold.
  void fail_start(const base::Status& why);
  // The exit status of that.
  [[nodiscard]] int status_of_failed_start(const base::Status& why) const;
  void kill(int exit_status);  // ends the job at once
  // Signals the members on this host. After SIGKILL, members that hang in the kernel are left
  // behind (teardown_limit).
  void signal_members(int signal);
  // Ends the job at once because no member has its state. `doubtful_hosts`: hosts whose members may
  // still run; `resumed`: the step from which the job had resumed.
  void kill_without_state(int exit_status, int doubtful_hosts, std::uint64_t resumed);
  // Adds the resource usage of another host's members: usage_reporter.h.
  void add_usage(const std::string& host, const std::string& json,
                 const metrics::UsageReporter::Lives& lives) {
    if (usage_) usage_->add(host, json, lives);
  }
  // A member has ended, on this host or another.
  void on_member_exit(const process::MemberExit& exit);
  // Other hosts were lost, perhaps with the last members: ends the job if it is over.
  void look_whether_over() { finish_if_over(); }
  // After the end: the status reported to the guardian, and whether a signal or a notice requested
  // the end.
  [[nodiscard]] int exit_status() const { return exit_status_.value_or(1); }
  [[nodiscard]] bool noticed() const { return noticed_; }
  // The exit status is decided and the job is being ended.
  [[nodiscard]] bool ending() const { return exit_status_.has_value(); }

 private:
  void on_control_message(ControlMessage message, std::int32_t value, base::Fd fd);
  [[nodiscard]] bool any_lives() const;
  [[nodiscard]] int unless_completed(int exit_status) const;
  void settle();
  void on_guardian_lost();
  void signal_all(int signal);
  [[nodiscard]] base::Status report_usage();
  void start_timer(boost::asio::steady_timer& timer, base::Duration after,
                   std::function<void()> then);
  void finish_if_over();
  void limit_drain(base::Duration limit);
  void watch_killed();
  void start_drain_timer();
  void clear_up();
  void leave_if_drained();
  void leave();

  AgentOptions options_;
  boost::asio::io_context& loop_;
  std::unique_ptr<process::Sink> out_;
  std::unique_ptr<process::Sink> separate_err_;  // nullptr if standard error is the same file
  process::Sink& err_;
  process::ProcessTable processes_;
  process::SignalReader signals_;
  ControlSocket guardian_;
  boost::asio::steady_timer grace_{loop_}, killed_{loop_};
  boost::asio::steady_timer timeout_{loop_}, orphan_{loop_}, drain_{loop_};
  std::unique_ptr<metrics::UsageReporter> usage_;  // nullptr: not requested
  std::unique_ptr<AgentJob> job_;
  std::optional<int> exit_status_;
  // Limit for writing output, from the members' end; empty: none.
  std::optional<base::Duration> drain_limit_;
  // The way to the end, in this order. Members live while it serves, also after the exit status is
  // decided.
  enum class Stage : std::uint8_t {
    kServing,
    kFinishing,  // no member lives; the job finishes what it writes
    kClearedUp,  // nothing of the job runs; output is on its way
    kLeaving,    // the output is written
  };
  Stage stage_ = Stage::kServing;
  bool noticed_ = false;
  bool asked_ = false;  // the end was requested from outside before any failure
};

}  // namespace regroup::agent
