// Forks early, while the process is small and has one thread; then waits for signals and children.
#include "launcher/supervise/guardian.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <vector>

#include "launcher/supervise/descendants.h"

namespace regroup::launcher {
namespace {

constexpr core::Duration kKillLimit = std::chrono::seconds(2);
constexpr int kAgentLost = 1;
constexpr std::uint32_t kMostIncarnations = 16;  // a coordinator that dies this often dies of its input

void say(const std::string& text) { fmt::print(stderr, "regroup: {}\n", text); }

std::string how(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status), signal_name(WTERMSIG(status)));
  }
  return fmt::format("exited with code {}", WEXITSTATUS(status));
}

// Signals that end a job; SIGHUP stays ignored if it was (nohup).
std::vector<int> watched_signals() {
  std::vector<int> out{SIGCHLD, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
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
              if (word == Word::kDone) guardian.exit_status_ = value;
            },
            [] {}) {}

  boost::asio::io_context loop{1};
  SignalReader signals;
  WordSocket agent;
};

Guardian::Guardian(AgentMain agent, CoordinatorMain coordinator)
    : agent_main_(std::move(agent)), coordinator_main_(std::move(coordinator)) {}

Guardian::~Guardian() = default;

int Guardian::run() {
  become_subreaper();
  core::Status status = start_agent();
  if (status.ok() && coordinator_main_) status = start_coordinator();
  if (status.ok()) {
    watch_ = std::make_unique<Watch>(*this, std::move(agent_socket_));
    status = watch_->signals.start(watched_signals());
  }
  if (!status.ok()) {
    say(status.message());
    kill_descendants(kKillLimit);
    return kAgentLost;
  }
  if (for_agent_.valid()) {
    watch_->agent.send(Word::kCoordinator, static_cast<std::int32_t>(incarnation_), for_agent_.get());
    for_agent_.reset();
  }
  watch_->loop.run();
  kill_descendants(kKillLimit);
  return exit_status_.value_or(kAgentLost);
}

core::Status Guardian::start_agent() {
  auto sockets = word_sockets();
  if (!sockets.ok()) return sockets.status();
  agent_ = ::fork();
  if (agent_ < 0) return core::system_error("fork", "the agent", errno);
  if (agent_ == 0) {
    sockets->first.reset();
    ::_exit(agent_main_(std::move(sockets->second)));
  }
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
    ::dup2(theirs.release(), 3);
    ::close_range(4, ~0U, 0);
    ::_exit(coordinator_main_(core::Fd(3), incarnation_));
  }
  for_agent_ = std::move(ours);
  return {};
}

void Guardian::on_signal(int signal) {
  switch (signal) {
    case SIGCHLD:
      return on_children();
    case SIGTSTP:
      watch_->agent.send(Word::kSignal, SIGSTOP);
      ::raise(SIGSTOP);
      return;
    case SIGUSR1:
    case SIGUSR2:
    case SIGCONT:
      watch_->agent.send(Word::kSignal, signal);
      return;
    default:
      watch_->agent.send(stops_++ == 0 ? Word::kStop : Word::kKill, signal);
  }
}

void Guardian::on_children() {
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid == agent_) on_agent_exit(status);
    if (pid == coordinator_) on_coordinator_exit(status);
  }
}

void Guardian::on_agent_exit(int status) {
  watch_->loop.poll();  // its last word may not be read yet
  if (!exit_status_) say(fmt::format("the agent (pid {}) {}: the job is lost", agent_, how(status)));
  agent_ = 0;
  watch_->loop.stop();
}

void Guardian::on_coordinator_exit(int status) {
  const pid_t pid = std::exchange(coordinator_, 0);
  if (exit_status_ || agent_ == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) return;
  say(fmt::format("the coordinator (pid {}) {}: starting it again", pid, how(status)));
  core::Status started = incarnation_ < kMostIncarnations
                             ? start_coordinator()
                             : core::internal_error("the coordinator died too often: the job ends");
  if (!started.ok()) {
    say(started.message());
    watch_->agent.send(Word::kKill);
    return;
  }
  watch_->agent.send(Word::kCoordinator, static_cast<std::int32_t>(incarnation_), for_agent_.get());
  for_agent_.reset();
}

}  // namespace regroup::launcher
