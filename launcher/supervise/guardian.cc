// Forks early, while the process is small and has one thread; then waits for signals and children.
#include "launcher/supervise/guardian.h"

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

#include "core/printable.h"
#include "launcher/supervise/descendants.h"
#include "launcher/supervise/sink.h"

namespace regroup::launcher {
namespace {

constexpr core::Duration kGuardianKillLimit = std::chrono::seconds(2);
constexpr std::chrono::seconds kAnswerLimit{2};   // of an agent that is to end the job at once
constexpr std::chrono::seconds kGuardLimit{1};    // for the guard to clear up after a dead agent
constexpr std::chrono::seconds kMessageLimit{1};  // for the last messages, if standard error is stalled
constexpr int kAgentLost = 1;
constexpr int kNotKnown = -1;                                // how many hosts there are
constexpr core::Duration kDying = std::chrono::seconds(10);  // of a signal that was passed on
constexpr std::size_t kMostRestarts = 16;  // within the window: a coordinator that dies this often ...
constexpr core::Duration kRestartWindow = std::chrono::seconds(60);  // ... dies of its input

void say(const std::string& text) { fmt::print(stderr, "regroup: {}\n", core::escaped_lines(text)); }

std::string how(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status), signal_name(WTERMSIG(status)));
  }
  return fmt::format("exited with code {}", WEXITSTATUS(status));
}

// SIGHUP stays ignored if it was (nohup).
std::vector<int> watched_signals(const std::vector<int>& forwarded, const std::vector<int>& notices) {
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
  Watch(Guardian& guardian, core::Fd socket)
      : signals(loop, [&guardian](int signal) { guardian.on_signal(signal); }),
        agent(
            loop, std::move(socket),
            [&guardian](Word word, std::int32_t value, core::Fd) {
              if (word == Word::kResumed) guardian.resumed_ = static_cast<std::uint32_t>(value);
              if (word == Word::kStateLost) guardian.on_state_lost(value);
              if (word == Word::kDone) guardian.on_done(value);
            },
            [&guardian] { guardian.on_agent_lost(); }) {}

  void say(const std::string& text) { err.write("regroup: " + core::escaped_lines(text) + "\n"); }

  boost::asio::io_context loop{1};
  Sink err{loop, STDERR_FILENO};
  boost::asio::steady_timer impatience{loop};
  boost::asio::steady_timer clearing{loop};
  SignalReader signals;
  WordSocket agent;
};

Guardian::Guardian(AgentMain agent, CoordinatorMain coordinator, GuardOptions guard,
                   std::vector<int> forwarded, std::vector<int> notices)
    : agent_main_(std::move(agent)),
      coordinator_main_(std::move(coordinator)),
      guard_options_(std::move(guard)),
      forwarded_(std::move(forwarded)),
      notices_(std::move(notices)) {}

Guardian::~Guardian() = default;

int Guardian::run() {
  become_subreaper();
  core::Status status = start_agent();
  if (status.ok() && coordinator_main_) status = start_coordinator();
  if (status.ok()) {
    watch_ = std::make_unique<Watch>(*this, std::move(agent_socket_));
    status = watch_->signals.start(watched_signals(forwarded_, notices_));
  }
  if (!status.ok()) {
    say(status.message());
    kill_descendants(kGuardianKillLimit);
    return kAgentLost;
  }
  if (for_agent_.valid()) {
    watch_->agent.send(Word::kCoordinator, static_cast<std::int32_t>(incarnation_), for_agent_.get());
    for_agent_.reset();
  }
  watch_->loop.run();
  end_helpers();
  if (guard_options_.record) guard_options_.record->clean(kGuardianKillLimit);
  drain_messages();
  return exit_status_.value_or(kAgentLost);
}

// After the agent's last word only its guard can be there, and itself, on its way to the end.
void Guardian::end_helpers() {
  const bool over = exit_status_ && !coordinator_main_;
  if (over && guarded_) ::kill(guard_->pid(), SIGKILL);
  kill_descendants(kGuardianKillLimit, {}, over);
}

core::Status Guardian::start_agent() {
  auto sockets = word_sockets();
  if (!sockets.ok()) return sockets.status();
  auto guard = Guard::start(
      guard_options_,
      [&] {
        sockets->first.reset();
        const int status = agent_main_(std::move(sockets->second));
        if (guard_options_.record)
          guard_options_.record->clean(kGuardianKillLimit);  // the others may be dead
        return status;
      },
      [&] { *sockets = {}; });
  if (!guard.ok()) return guard.status();
  guard_ = std::move(*guard);
  guarded_ = true;
  agent_socket_ = std::move(sockets->first);
  return {};
}

// Leaves the agent's end of the link in for_agent_.
core::Status Guardian::start_coordinator() {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return core::system_error("socketpair", "coordinator and agent", errno);
  }
  core::Fd ours(fds[0]);
  core::Fd theirs(fds[1]);
  ++incarnation_;
  coordinator_ = ::fork();
  if (coordinator_ < 0) return core::system_error("fork", "the coordinator", errno);
  if (coordinator_ == 0) {
    // Everything of the guardian's goes, its loop included; nothing of it is touched any more.
    ::prctl(PR_SET_NAME, "regroup-coord");
    ::dup2(theirs.release(), 3);
    ::close_range(4, ~0U, 0);
    ::_exit(coordinator_main_(core::Fd(3), incarnation_));
  }
  for_agent_ = std::move(ours);
  // It is no descendant of the guard's: when we are dead and it is stopped, nobody else would find it.
  if (guard_options_.record) return guard_options_.record->add_process(coordinator_);
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
      static_cast<void>(wishes_.repeats(signal, watch_->signals.by_key(), core::SystemClock().now()));
    if (signal == SIGINT && stops_++ == 0 && !guard_options_.quiet) {
      watch_->say("SIGINT is passed on to the members; once more ends the job at once");
    }
    if (signal == SIGINT || signal == SIGTERM || signal == SIGQUIT) passed_on_ = core::SystemClock().now();
    // SIGTSTP would not stop members: their process groups are no shell's.
    watch_->agent.send(Word::kSignal, signal == SIGTSTP ? SIGSTOP : signal);
  } else if (signal != SIGTSTP) {
    on_stop(signal);
  }
  if (signal == SIGTSTP) ::raise(SIGSTOP);
}

// The second one shows that the user is in earnest: an agent that hangs, or is stopped, is killed.
void Guardian::on_stop(int signal) {
  asked_ = true;
  if (wishes_.repeats(signal, watch_->signals.by_key(), core::SystemClock().now())) return;
  watch_->agent.send(stops_++ == 0 ? Word::kStop : Word::kKill, is_notice(signal) ? SIGTERM : signal);
  if (stops_ != 2) return;
  watch_->impatience.expires_after(kAnswerLimit);
  watch_->impatience.async_wait([this](const boost::system::error_code& error) {
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
    if (guarded_ && pid == guard_->pid()) {
      on_guard_exit(status);
    } else if (pid == agent()) {  // an orphan of its guard
      on_agent_exit(fmt::format("the agent (pid {}) {}", pid, how(status)), WIFSIGNALED(status));
    } else if (pid == coordinator_) {
      on_coordinator_exit(status);
    }
  }
}

// Nothing is left but agent and guard, which need not end in their own time; a coordinator has last words.
void Guardian::on_done(int exit_status) {
  exit_status_ = exit_status;
  if (!coordinator_main_ && !(guarded_ && guard_->busy())) watch_->loop.stop();
}

// A guard that does not clear up is in the way: its children become ours.
void Guardian::on_agent_lost() {
  agent_lost_ = true;
  watch_->clearing.expires_after(kGuardLimit);
  watch_->clearing.async_wait([this](const boost::system::error_code& error) {
    if (!error && guarded_) ::kill(guard_->pid(), SIGKILL);
  });
}

void Guardian::on_guard_exit(int status) {
  guarded_ = false;
  const pid_t pid = agent();
  if (const auto agent_status = guard_->agent_status()) {
    return on_agent_exit(fmt::format("the agent (pid {}) {}", pid, how(*agent_status)),
                         WIFSIGNALED(*agent_status));
  }
  if (const core::Status why = guard_->refusal(); !why.ok())
    return on_agent_exit(why.message(), /*killed=*/false);
  siginfo_t info{};
  // It is our child now, unless the guard died just after it had reaped it.
  if (pid == 0 || ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    return on_agent_exit(fmt::format("the guard (pid {}) {} after the agent", guard_->pid(), how(status)),
                         /*killed=*/false);
  }
  if (exit_status_ || agent_lost_ || guard_options_.quiet) return;
  watch_->say(
      fmt::format("the guard (pid {}) {}: if the launcher is killed too, only the next regroup ends "
                  "what it leaves",
                  guard_->pid(), how(status)));
}

// Of which all members die is no loss: it was asked for.
void Guardian::on_state_lost(int doubtful_hosts) {
  const bool signalled = passed_on_ != core::TimePoint() && core::SystemClock().now() - passed_on_ < kDying;
  if (!signalled) state_lost_ = doubtful_hosts;
}

// One that was not killed has refused the job.
void Guardian::on_agent_exit(const std::string& what, bool killed) {
  agent_gone_ = true;
  watch_->loop.poll();  // its last word may not be read yet
  if (!exit_status_) {
    watch_->say(what + ": the job is lost");
    if (coordinator_main_ && killed) on_state_lost(kNotKnown);
  }
  watch_->loop.stop();
}

void Guardian::on_coordinator_exit(int status) {
  const pid_t pid = std::exchange(coordinator_, 0);
  watch_->loop.poll();  // the agent's last word, or its end, may be why
  if (exit_status_ || agent_gone_ || agent_lost_ || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) return;
  const std::string died = fmt::format("the coordinator (pid {}) {}", pid, how(status));
  if (!may_restart()) {
    watch_->say(fmt::format("{} for the {}th time within {} s: the job ends", died, kMostRestarts + 1,
                            std::chrono::duration_cast<std::chrono::seconds>(kRestartWindow).count()));
    watch_->agent.send(Word::kKill);
    return;
  }
  const core::Status started = start_coordinator();
  if (!guard_options_.quiet) watch_->say(died + ": starting it again");
  if (!started.ok()) {
    watch_->say(started.message());
    watch_->agent.send(Word::kKill);
    return;
  }
  watch_->agent.send(Word::kCoordinator, static_cast<std::int32_t>(incarnation_), for_agent_.get());
  for_agent_.reset();
}

bool Guardian::may_restart() {
  const core::TimePoint now = core::SystemClock().now();
  while (!restarts_.empty() && now - restarts_.front() > kRestartWindow) restarts_.pop_front();
  if (restarts_.size() >= kMostRestarts) return false;
  restarts_.push_back(now);
  return true;
}

}  // namespace regroup::launcher
