// The reaper polls a signalfd and a pipe and uses no event loop: it must work when everything else
// has failed.
#include "launcher/process/reaper.h"

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

#include "base/clock.h"
#include "base/printable.h"
#include "launcher/process/dead_jobs.h"
#include "launcher/process/descendants.h"

namespace regroup::process {
namespace {

// Their sum is below the two seconds within which a job must be gone.
// For the agent to end after the guardian's death.
constexpr base::Duration kAgentLimit = std::chrono::milliseconds(1500);
constexpr base::Duration kKillLimit = std::chrono::seconds(2);
constexpr base::Duration kOldJobsLimit = std::chrono::milliseconds(900);

// Never blocks: the reader of standard error may be gone or stalled.
void say(const std::string& text) {
  pollfd err{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&err, 1, 0) != 1 || (err.revents & POLLOUT) == 0) return;
  const std::string line = "regroup: " + base::escaped_lines(text) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void Reaper::Unmap::operator()(SharedState* state) const { ::munmap(state, sizeof(SharedState)); }

class ReaperProcess {
 public:
  ReaperProcess(const ReaperOptions& options, Reaper::SharedState& state, base::Fd life)
      : options_(options), state_(state), life_(std::move(life)) {}

  // Returns when the agent and all descendants are gone.
  void run() {
    detach();
    if (state_.busy.load()) end_old_jobs();
    state_.busy.store(false);
    while (!ended()) wait();
    const bool killed =
        kill_descendants(kKillLimit, [this](pid_t pid, int status) { note(pid, status); });
    if (!options_.record) return;
    if (killed) options_.record->clean(kKillLimit);
    end_old_jobs();  // jobs that members had started
  }

 private:
  // Leaves the terminal and the process group, so that Ctrl-C and kill -- -GROUP do not reach the
  // reaper, and closes standard output, so that its readers see the end of the job's output.
  void detach() {
    ::setsid();
    const base::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    ::dup2(null.get(), STDIN_FILENO);
    ::dup2(null.get(), STDOUT_FILENO);
    sigset_t child;
    ::sigemptyset(&child);
    ::sigaddset(&child, SIGCHLD);
    children_ = base::Fd(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  void end_old_jobs() const {
    for (const DeadJob& dead : end_dead_jobs(options_.record->folder(), kOldJobsLimit)) {
      if (options_.quiet) continue;
      say(fmt::format("job {}, whose launcher was killed, had left {} process{}: {}", dead.job,
                      dead.killed, dead.killed == 1 ? "" : "es",
                      dead.ended ? "ended" : "not all could be ended"));
    }
  }

  void note(pid_t pid, int status) {
    if (pid != state_.agent.load()) return;
    state_.status.store(status);
    state_.ended.store(true);
  }

  [[nodiscard]] bool ended() {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) note(pid, status);
    return state_.ended.load() || (deadline_ && clock_.now() >= *deadline_);
  }

  void wait() {
    std::array<pollfd, 2> events{
        {{children_.get(), POLLIN, 0}, {deadline_ ? -1 : life_.get(), POLLIN, 0}}};
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

  const ReaperOptions& options_;
  Reaper::SharedState& state_;
  base::Fd life_;
  base::Fd children_;
  base::SystemClock clock_;
  std::optional<base::TimePoint> deadline_;  // for the agent's end; set when the guardian is gone
};

base::Result<Reaper> Reaper::start(const ReaperOptions& options, const std::function<int()>& agent,
                                   const std::function<void()>& leave_to_agent) {
  Reaper reaper;
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return base::system_error("pipe2", "the reaper", errno);
  base::Fd theirs(pipe[0]);
  reaper.life_.reset(pipe[1]);
  void* page = ::mmap(nullptr, sizeof(SharedState), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return base::system_error("mmap", "the reaper's page", errno);
  reaper.state_.reset(new (page) SharedState);
  reaper.state_->busy.store(options.record && are_dead_jobs(options.record->folder()));
  reaper.pid_ = ::fork();
  if (reaper.pid_ < 0) return base::system_error("fork", "the reaper", errno);
  if (reaper.pid_ > 0) return reaper;
  reaper.life_.reset();
  become_subreaper();  // before there is an agent, whose death makes its children this process's
  const pid_t child = ::fork();
  if (child < 0) {
    reaper.state_->refusal.store(errno);
    ::_exit(1);
  }
  if (child == 0) {
    theirs.reset();
    reaper.state_->agent.store(::getpid());
    ::prctl(PR_SET_NAME, "regroup-agent");
    ::_exit(agent());
  }
  reaper.state_->agent.store(child);
  ::prctl(PR_SET_NAME, "regroup-reaper");
  leave_to_agent();
  ReaperProcess(options, *reaper.state_, std::move(theirs)).run();
  ::_exit(0);
}

base::Status Reaper::refusal() const {
  const int error = state_->refusal.load();
  return error == 0 ? base::Status() : base::system_error("fork", "the agent", error);
}

std::optional<int> Reaper::agent_status() const {
  return state_->ended.load() ? std::optional(state_->status.load()) : std::nullopt;
}

}  // namespace regroup::process
