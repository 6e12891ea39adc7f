// Forks early, while the process is small and has one thread; then waits for signals and children.
#include "launcher/agent/guardian.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <vector>

#include "base/clock.h"
#include "base/printable.h"
#include "launcher/process/descendants.h"
#include "launcher/process/sink.h"

namespace regroup::agent {
namespace {

constexpr base::Duration kGuardianKillLimit = std::chrono::seconds(2);
constexpr std::chrono::seconds kAnswerLimit{2};  // for an agent to end the job at once
constexpr std::chrono::seconds kReaperLimit{1};  // for the reaper to clean up after a dead agent
constexpr std::chrono::seconds kMessageLimit{
    1};  // to write the last messages, if standard error is stalled
constexpr int kAgentLost = 1;
constexpr int kNotKnown = -1;  // the number of hosts
// After a forwarded signal, in which a member's death is its effect.
constexpr base::Duration kSignalEffect = std::chrono::seconds(10);
// Within kRestartWindow: a coordinator that dies more often ...
constexpr std::size_t kMostRestarts = 16;
// ... dies because of its input, and would again.
constexpr base::Duration kRestartWindow = std::chrono::seconds(60);

void say(const std::string& text) {
  fmt::print(stderr, "regroup: {}\n", base::escaped_lines(text));
}

std::string how(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                       process::signal_name(WTERMSIG(status)));
  }
  return fmt::format("exited with code {}", WEXITSTATUS(status));
}

// SIGHUP stays ignored if it was (nohup).
std::vector<int> watched_signals(const std::vector<int>& forwarded,
                                 const std::vector<int>& notices) {
  std::vector<int> out{SIGCHLD, SIGINT, SIGTERM, SIGQUIT, SIGTSTP};
  out.insert(out.end(), forwarded.begin(), forwarded.end());
  out.insert(out.end(), notices.begin(), notices.end());
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) out.push_back(SIGHUP);
  return out;
}

}  // namespace

struct Guardian::Watch {
  Watch(Guardian& guardian, base::Fd socket)
      : signals(loop, [&guardian](int signal) { guardian.on_signal(signal); }),
        agent(
            loop, std::move(socket),
            [&guardian](ControlMessage message, std::int32_t value, base::Fd) {
              if (message == ControlMessage::kResumed)
                guardian.resumed_ = static_cast<std::uint32_t>(value);
              if (message == ControlMessage::kStateLost) guardian.on_state_lost(value);
              if (message == ControlMessage::kDone) guardian.on_done(value);
            },
            [&guardian] { guardian.on_agent_lost(); }) {
    if (guardian.reaper_options_.line) err.share(guardian.reaper_options_.line.get());
  }

  void say(const std::string& text) { err.write("regroup: " + base::escaped_lines(text) + "\n"); }

  boost::asio::io_context loop{1};
  process::Sink err{loop, STDERR_FILENO};
  boost::asio::steady_timer answer_timer{loop};
  boost::asio::steady_timer clearing{loop};
  process::SignalReader signals;
  ControlSocket agent;
};

Guardian::Guardian(AgentMain agent, CoordinatorMain coordinator, process::ReaperOptions reaper,
                   std::vector<int> forwarded, std::vector<int> notices)
    : agent_main_(std::move(agent)),
      coordinator_main_(std::move(coordinator)),
      reaper_options_(std::move(reaper)),
      forwarded_(std::move(forwarded)),
      notices_(std::move(notices)) {}

Guardian::~Guardian() = default;

int Guardian::run() {
  process::become_subreaper();
  base::Status status = start_agent();
  if (status.ok() && coordinator_main_) status = start_coordinator();
  if (status.ok()) {
    watch_ = std::make_unique<Watch>(*this, std::move(agent_socket_));
    status = watch_->signals.start(watched_signals(forwarded_, notices_));
  }
  if (!status.ok()) {
    say(status.message());
    process::kill_descendants(kGuardianKillLimit);
    return kAgentLost;
  }
  if (for_agent_.valid()) {
    watch_->agent.send(ControlMessage::kCoordinator, static_cast<std::int32_t>(incarnation_),
                       for_agent_.get());
    for_agent_.reset();
  }
  watch_->loop.run();
  end_helpers();
  if (reaper_options_.record) reaper_options_.record->clean(kGuardianKillLimit);
  drain_messages();
  watch_->err.draw("");
  return exit_status_.value_or(kAgentLost);
}

// After kDone only the reaper and the exiting agent are left.
void Guardian::end_helpers() {
  const bool over = exit_status_ && !coordinator_main_;
  if (over && reaper_alive_) ::kill(reaper_->pid(), SIGKILL);
  process::kill_descendants(kGuardianKillLimit, {}, over);
}

base::Status Guardian::start_agent() {
  REGROUP_ASSIGN_OR_RETURN(auto sockets, control_sockets());
  auto reaper = process::Reaper::start(
      reaper_options_,
      [&] {
        sockets.first.reset();
        const int status = agent_main_(std::move(sockets.second));
        if (reaper_options_.record)
          reaper_options_.record->clean(kGuardianKillLimit);  // guardian and reaper may be dead
        return status;
      },
      [&] { sockets = {}; });
  if (!reaper.ok()) return reaper.status();
  reaper_ = std::move(*reaper);
  reaper_alive_ = true;
  agent_socket_ = std::move(sockets.first);
  return {};
}

// Leaves the agent's end of the link in for_agent_.
base::Status Guardian::start_coordinator() {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return base::system_error("socketpair", "coordinator and agent", errno);
  }
  base::Fd ours(fds[0]);
  base::Fd theirs(fds[1]);
  ++incarnation_;
  coordinator_ = ::fork();
  if (coordinator_ < 0) return base::system_error("fork", "the coordinator", errno);
  if (coordinator_ == 0) {
    // All descriptors of the guardian are closed, those of its loop included; the child never uses
    // them.
    ::prctl(PR_SET_NAME, "regroup-coord");
    ::dup2(theirs.release(), 3);
    ::close_range(4, ~0U, 0);
    ::_exit(coordinator_main_(base::Fd(3), incarnation_));
  }
  for_agent_ = std::move(ours);
  // The coordinator is no descendant of the reaper: the record lets the reaper find it when the
  // guardian is dead.
  if (reaper_options_.record) return reaper_options_.record->add_process(coordinator_);
  return {};
}

bool Guardian::is_notice(int signal) const {
  return std::find(notices_.begin(), notices_.end(), signal) != notices_.end();
}

void Guardian::on_signal(int signal) {
  if (signal == SIGCHLD) return on_children();
  const bool again = signal == SIGINT && stops_ > 0;  // a second Ctrl-C ends any job
  if (!again && !is_notice(signal) &&
      std::find(forwarded_.begin(), forwarded_.end(), signal) != forwarded_.end()) {
    if (signal == SIGINT)
      static_cast<void>(
          stop_requests_.repeats(signal, watch_->signals.by_key(), base::SystemClock().now()));
    if (signal == SIGINT && stops_++ == 0 && !reaper_options_.quiet) {
      watch_->say("SIGINT is forwarded to the members; a second one ends the job at once");
    }
    if (signal == SIGINT || signal == SIGTERM || signal == SIGQUIT)
      passed_on_ = base::SystemClock().now();
    // SIGTSTP would not stop members: their process groups are no shell's.
    watch_->agent.send(ControlMessage::kSignal, signal == SIGTSTP ? SIGSTOP : signal);
  } else if (signal != SIGTSTP) {
    on_stop(signal);
  }
  if (signal == SIGTSTP) ::raise(SIGSTOP);
}

// A second request ends the job at once; an agent that hangs or is stopped is then killed.
void Guardian::on_stop(int signal) {
  asked_ = true;
  if (stop_requests_.repeats(signal, watch_->signals.by_key(), base::SystemClock().now())) return;
  watch_->agent.send(stops_++ == 0 ? ControlMessage::kStop : ControlMessage::kKill,
                     is_notice(signal) ? SIGTERM : signal);
  if (stops_ != 2) return;
  watch_->answer_timer.expires_after(kAnswerLimit);
  watch_->answer_timer.async_wait([this](const boost::system::error_code& error) {
    if (error || agent() == 0 || agent_lost_) return;
    watch_->say(fmt::format("the agent (pid {}) does not answer: killing it", agent()));
    ::kill(agent(), SIGKILL);
  });
}

void Guardian::drain_messages() {
  if (!watch_->err.congested()) return;
  watch_->err.when_free([this] { watch_->loop.stop(); });
  watch_->loop.restart();
  watch_->loop.run_for(kMessageLimit);
}

void Guardian::on_children() {
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (reaper_alive_ && pid == reaper_->pid()) {
      on_reaper_exit(status);
    } else if (pid == agent()) {  // the reaper has died
      on_agent_exit(fmt::format("the agent (pid {}) {}", pid, how(status)), WIFSIGNALED(status));
    } else if (pid == coordinator_) {
      on_coordinator_exit(status);
    }
  }
}

// Only agent and reaper may still run, and they may be killed; a coordinator is waited for, since
// it may still print.
void Guardian::on_done(int exit_status) {
  exit_status_ = exit_status;
  if (!coordinator_main_ && !(reaper_alive_ && reaper_->busy())) watch_->loop.stop();
}

// A reaper that hangs is killed: its children then become children of the guardian, which kills
// them.
void Guardian::on_agent_lost() {
  agent_lost_ = true;
  watch_->clearing.expires_after(kReaperLimit);
  watch_->clearing.async_wait([this](const boost::system::error_code& error) {
    if (!error && reaper_alive_) ::kill(reaper_->pid(), SIGKILL);
  });
}

void Guardian::on_reaper_exit(int status) {
  reaper_alive_ = false;
  const pid_t pid = agent();
  if (const auto agent_status = reaper_->agent_status()) {
    return on_agent_exit(fmt::format("the agent (pid {}) {}", pid, how(*agent_status)),
                         WIFSIGNALED(*agent_status));
  }
  if (const base::Status why = reaper_->refusal(); !why.ok())
    return on_agent_exit(why.message(), /*killed=*/false);
  siginfo_t info{};
  // The agent is the guardian's child now, unless the reaper died just after reaping it.
  if (pid == 0 ||
      ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    return on_agent_exit(
        fmt::format("the reaper (pid {}) {} after the agent", reaper_->pid(), how(status)),
        /*killed=*/false);
  }
  if (exit_status_ || agent_lost_ || reaper_options_.quiet) return;
  watch_->say(fmt::format(
      "the reaper (pid {}) {}: if the launcher is killed too, only the next regroup ends the "
      "processes that it leaves",
      reaper_->pid(), how(status)));
}

// If a signal that was just forwarded killed all members, that was requested and the state is not
// lost.
void Guardian::on_state_lost(int doubtful_hosts) {
  const bool signalled =
      passed_on_ != base::TimePoint() && base::SystemClock().now() - passed_on_ < kSignalEffect;
  if (!signalled) state_lost_ = doubtful_hosts;
}

// An agent that exited by itself has refused the job.
void Guardian::on_agent_exit(const std::string& what, bool killed) {
  agent_gone_ = true;
  watch_->loop.poll();  // kDone may not be read yet
  if (!exit_status_) {
    watch_->say(what + ": the job is lost");
    if (coordinator_main_ && killed) on_state_lost(kNotKnown);
  }
  watch_->loop.stop();
}

void Guardian::on_coordinator_exit(int status) {
  const pid_t pid = std::exchange(coordinator_, 0);
  watch_->loop.poll();  // the coordinator also exits after kDone or the agent's death
  if (exit_status_ || agent_gone_ || agent_lost_ || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
    return;
  const std::string died = fmt::format("the coordinator (pid {}) {}", pid, how(status));
  if (!may_restart()) {
    watch_->say(
        fmt::format("{} for the {}th time within {} s: the job ends", died, kMostRestarts + 1,
                    std::chrono::duration_cast<std::chrono::seconds>(kRestartWindow).count()));
    watch_->agent.send(ControlMessage::kKill);
    return;
  }
  const base::Status started = start_coordinator();
  if (!reaper_options_.quiet) watch_->say(died + ": restarting it");
  if (!started.ok()) {
    watch_->say(started.message());
    watch_->agent.send(ControlMessage::kKill);
    return;
  }
  watch_->agent.send(ControlMessage::kCoordinator, static_cast<std::int32_t>(incarnation_),
                     for_agent_.get());
  for_agent_.reset();
}

bool Guardian::may_restart() {
  const base::TimePoint now = base::SystemClock().now();
  while (!restarts_.empty() && now - restarts_.front() > kRestartWindow) restarts_.pop_front();
  if (restarts_.size() >= kMostRestarts) return false;
  restarts_.push_back(now);
  return true;
}

}  // namespace regroup::agent
