// A small process: it waits for the death of its child and the end of a pipe, in no loop that could fail.
#include "launcher/containment/guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <new>

#include "core/printable.h"
#include "launcher/containment/dead_jobs.h"
#include "launcher/supervise/descendants.h"

namespace regroup::launcher {
namespace {

// Together less than the two seconds within which a job is gone.
constexpr core::Duration kAgentLimit = std::chrono::milliseconds(1500);  // to end when the guardian is gone
constexpr core::Duration kKillLimit = std::chrono::seconds(2);
constexpr core::Duration kOldJobsLimit = std::chrono::milliseconds(900);

// Never blocks: whoever reads may be gone or stalled.
void say(const std::string& text) {
  pollfd err{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&err, 1, 0) != 1 || (err.revents & POLLOUT) == 0) return;
  const std::string line = "regroup: " + core::escaped_lines(text) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void Guard::Unmap::operator()(Board* board) const { ::munmap(board, sizeof(Board)); }

class GuardProcess {
 public:
  GuardProcess(const GuardOptions& options, Guard::Board& board, core::Fd life)
      : options_(options), board_(board), life_(std::move(life)) {}

  // Until agent and descendants are gone.
  void run() {
    detach();
    if (board_.busy.load()) end_old_jobs();
    board_.busy.store(false);
    while (!ended()) wait();
    const bool killed = kill_descendants(kKillLimit, [this](pid_t pid, int status) { note(pid, status); });
    if (!options_.record) return;
    if (killed) options_.record->clean(kKillLimit);
    end_old_jobs();  // those that members had started
  }

 private:
  // From the terminal and from kill -- -GROUP; and readers of our standard output need not wait for us.
  void detach() {
    ::setsid();
    become_subreaper();
    const core::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    ::dup2(null.get(), STDIN_FILENO);
    ::dup2(null.get(), STDOUT_FILENO);
    sigset_t child;
    ::sigemptyset(&child);
    ::sigaddset(&child, SIGCHLD);
    children_ = core::Fd(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  void end_old_jobs() const {
    for (const DeadJob& dead : end_dead_jobs(options_.record->folder(), kOldJobsLimit)) {
      if (options_.quiet) continue;
      say(fmt::format("job {}, whose launcher was killed, had left {} process{}: {}", dead.job, dead.killed,
                      dead.killed == 1 ? "" : "es", dead.ended ? "ended" : "not all could be ended"));
    }
  }

  void note(pid_t pid, int status) {
    if (pid != board_.agent.load()) return;
    board_.status.store(status);
    board_.ended.store(true);
  }

  [[nodiscard]] bool ended() {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) note(pid, status);
    return board_.ended.load() || (deadline_ && clock_.now() >= *deadline_);
  }

  void wait() {
    std::array<pollfd, 2> events{{{children_.get(), POLLIN, 0}, {deadline_ ? -1 : life_.get(), POLLIN, 0}}};
    int timeout_ms = -1;
    if (deadline_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - clock_.now());
      timeout_ms = static_cast<int>(std::clamp<long>(left.count(), 0, 1'000'000));
    }
    ::poll(events.data(), events.size(), timeout_ms);
    std::array<signalfd_siginfo, 8> seen{};
    while (::read(children_.get(), seen.data(), sizeof seen) > 0) {
    }
    if (events[1].revents != 0) deadline_ = clock_.now() + options_.orphan_timeout + kAgentLimit;
  }

  const GuardOptions& options_;
  Guard::Board& board_;
  core::Fd life_;
  core::Fd children_;
  core::SystemClock clock_;
  std::optional<core::TimePoint> deadline_;  // of the agent, once the guardian is gone
};

core::Result<Guard> Guard::start(const GuardOptions& options, const std::function<int()>& agent,
                                 const std::function<void()>& leave_to_agent) {
  Guard guard;
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return core::system_error("pipe2", "the guard", errno);
  core::Fd theirs(pipe[0]);
  guard.life_.reset(pipe[1]);
  void* page = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return core::system_error("mmap", "the guard's page", errno);
  guard.board_.reset(new (page) Board);
  guard.board_->busy.store(options.record && are_dead_jobs(options.record->folder()));
  guard.pid_ = ::fork();
  if (guard.pid_ < 0) return core::system_error("fork", "the guard", errno);
  if (guard.pid_ > 0) return guard;
  guard.life_.reset();
  const pid_t child = ::fork();
  if (child < 0) {
    guard.board_->refusal.store(errno);
    ::_exit(1);
  }
  if (child == 0) {
    theirs.reset();
    guard.board_->agent.store(::getpid());
    ::prctl(PR_SET_NAME, "regroup-agent");
    ::_exit(agent());
  }
  guard.board_->agent.store(child);
  ::prctl(PR_SET_NAME, "regroup-guard");
  leave_to_agent();
  GuardProcess(options, *guard.board_, std::move(theirs)).run();
  ::_exit(0);
}

core::Status Guard::refusal() const {
  const int error = board_->refusal.load();
  return error == 0 ? core::Status() : core::system_error("fork", "the agent", error);
}

std::optional<int> Guard::agent_status() const {
  return board_->ended.load() ? std::optional(board_->status.load()) : std::nullopt;
}

}  // namespace regroup::launcher
