// The guardian: the process that the user started. It owns the terminal and the exit status,
// forwards signals, restarts a coordinator that dies, and cleans up when the agent or the reaper
// dies.
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

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launcher/agent/control_message.h"
#include "launcher/process/reaper.h"
#include "launcher/process/signals.h"

namespace regroup::agent {

// Run in the forked process and return its exit status.
using AgentMain = std::function<int(base::Fd guardian)>;
using CoordinatorMain = std::function<int(base::Fd agent, std::uint32_t incarnation)>;

class Guardian {
 public:
  // Without a `coordinator` the job has a fixed size. `forwarded`: signals that go to all members,
  // SIGTSTP as SIGSTOP; SIGTSTP stops the guardian, too. `notices`: further signals that end the
  // job. Those of SIGINT, SIGTERM, SIGQUIT and SIGHUP that are not forwarded end the job, a second
  // one at once unless it repeats the first (StopRequests). A second SIGINT always ends the job.
  // All other signals are ignored.
  Guardian(AgentMain agent, CoordinatorMain coordinator, process::ReaperOptions reaper,
           std::vector<int> forwarded, std::vector<int> notices = {});
  ~Guardian();
  // Forks the processes of the job and returns its exit status. For a process with one thread,
  // signals blocked.
  [[nodiscard]] int run();
  // After run(): set if the job has a coordinator, nobody requested its end, and no member with its
  // state was left. The value is the number of hosts whose members may still run for a moment; -1:
  // unknown.
  [[nodiscard]] std::optional<int> state_lost() const {
    return asked_ ? std::nullopt : state_lost_;
  }
  [[nodiscard]] std::uint32_t resumed() const {
    return resumed_;
  }  // step reported by the agent; 0: none

 private:
  struct Watch;  // the loop and its sockets; made after the first forks

  [[nodiscard]] base::Status start_agent();
  [[nodiscard]] base::Status start_coordinator();
  void on_signal(int signal);
  [[nodiscard]] bool is_notice(int signal) const;
  void on_stop(int signal);
  void drain_messages();
  [[nodiscard]] bool may_restart();
  void end_helpers();
  void on_children();
  void on_done(int exit_status);
  void on_agent_lost();
  void on_reaper_exit(int status);
  void on_agent_exit(const std::string& what, bool killed);
  void on_state_lost(int doubtful_hosts);
  [[nodiscard]] pid_t agent() const { return reaper_ ? reaper_->agent() : 0; }
  void on_coordinator_exit(int status);

  AgentMain agent_main_;
  CoordinatorMain coordinator_main_;
  process::ReaperOptions reaper_options_;
  std::vector<int> forwarded_, notices_;
  base::Fd agent_socket_;
  std::unique_ptr<Watch> watch_;
  std::optional<process::Reaper> reaper_;
  bool reaper_alive_ = false;  // the reaper runs
  bool agent_gone_ = false;    // the agent has been reaped
  pid_t coordinator_ = 0;
  base::Fd for_agent_;  // the agent's end of the socket to the current coordinator
  std::uint32_t incarnation_ = 0;
  std::deque<base::TimePoint> restarts_;  // of the coordinator, within the window
  int stops_ = 0;
  process::StopRequests stop_requests_;
  bool agent_lost_ = false;  // its socket is closed: it is exiting
  std::optional<int> exit_status_, state_lost_;
  std::uint32_t resumed_ = 0;
  bool asked_ = false;           // the end of the job was requested
  base::TimePoint passed_on_{};  // when a signal that may kill members was forwarded
};

}  // namespace regroup::agent
