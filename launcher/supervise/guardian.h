// The guardian: the process the user started. It keeps the terminal and the exit status, passes signals on,
// starts the coordinator again when it dies, and cleans up when the agent or its guard dies.
#pragma once

#include <utility>

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/fd.h"
#include "core/status.h"
#include "launcher/containment/guard.h"
#include "launcher/supervise/signals.h"
#include "launcher/supervise/words.h"

namespace regroup::launcher {

// Run in the forked process; what they return is its exit status.
using AgentMain = std::function<int(core::Fd guardian)>;
using CoordinatorMain = std::function<int(core::Fd agent, std::uint32_t incarnation)>;

class Guardian {
 public:
  // Without a `coordinator` the job is rigid. `notices`: further signals that end it. `forwarded`: the
  // signals that go to all members, SIGTSTP as SIGSTOP. SIGTSTP stops the guardian too. Others of SIGINT,
  // SIGTERM, SIGQUIT and SIGHUP end the job, as a second SIGINT always does, and at once if it is no repeat
  // (EndWishes); all else is ignored.
  Guardian(AgentMain agent, CoordinatorMain coordinator, GuardOptions guard, std::vector<int> forwarded,
           std::vector<int> notices = {});
  ~Guardian();
  // Forks the processes of the job and returns its exit status. For a process with one thread, signals
  // blocked.
  [[nodiscard]] int run();
  // Behind run(): the job has a coordinator, nobody asked for its end, and no member was left that had its
  // state. With how many hosts whose members may live on for a moment; -1: not known.
  [[nodiscard]] std::optional<int> state_lost() const { return asked_ ? std::nullopt : state_lost_; }
  [[nodiscard]] std::uint32_t resumed() const { return resumed_; }  // as the agent says; 0: it does not

 private:
  struct Watch;  // the loop and what hangs on it; made after the first forks

  [[nodiscard]] core::Status start_agent();
  [[nodiscard]] core::Status start_coordinator();
  void on_signal(int signal);
  [[nodiscard]] bool is_notice(int signal) const;
  void on_stop(int signal);
  void drain_messages();
  [[nodiscard]] bool may_restart();
  void end_helpers();
  void on_children();
  void on_done(int exit_status);
  void on_agent_lost();
  void on_guard_exit(int status);
  void on_agent_exit(const std::string& what, bool killed);
  void on_state_lost(int doubtful_hosts);
  [[nodiscard]] pid_t agent() const { return guard_ ? guard_->agent() : 0; }
  void on_coordinator_exit(int status);

  AgentMain agent_main_;
  CoordinatorMain coordinator_main_;
  GuardOptions guard_options_;
  std::vector<int> forwarded_, notices_;
  core::Fd agent_socket_;
  std::unique_ptr<Watch> watch_;
  std::optional<Guard> guard_;
  bool guarded_ = false;     // the guard lives
  bool agent_gone_ = false;  // it has been reaped
  pid_t coordinator_ = 0;
  core::Fd for_agent_;  // the agent's end of the link to the newest coordinator
  std::uint32_t incarnation_ = 0;
  std::deque<core::TimePoint> restarts_;  // the latest
  int stops_ = 0;
  EndWishes wishes_;
  bool agent_lost_ = false;  // its socket is closed: it is dying
  std::optional<int> exit_status_, state_lost_;
  std::uint32_t resumed_ = 0;
  bool asked_ = false;           // somebody wants the job's end
  core::TimePoint passed_on_{};  // a signal to the members of which they may die
};

}  // namespace regroup::launcher
