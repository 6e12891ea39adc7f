// The agent's loop and the end of a job, in this order: members end, descendants are killed,
// streams are drained, the guardian is told.
#include "launcher/agent/agent.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <limits>

#include "base/clock.h"
#include "base/printable.h"
#include "launcher/agent/node.h"
#include "launcher/process/descendants.h"
#include "launcher/process/environment.h"

namespace regroup::agent {
namespace {

constexpr base::Duration kKillLimit = std::chrono::seconds(2);
constexpr base::Duration kDrainLimit = std::chrono::seconds(2);
constexpr std::size_t kMostKept = 16 << 20;
// Reserved of a notice's time for the work after the members' end.
constexpr base::Duration kClearing = std::chrono::seconds(1);

}  // namespace

std::string ran_too_long(base::Duration timeout) {
  return fmt::format("the job ran longer than --timeout {:g} allows: ending it",
                     std::chrono::duration<double>(timeout).count());
}

void AgentJob::on_coordinator(base::Fd, std::int32_t) {}

Agent::Agent(boost::asio::io_context& loop, AgentOptions options, base::Fd guardian,
             const JobFactory& job)
    : options_(std::move(options)),
      loop_(loop),
      out_(std::make_unique<process::Sink>(loop_, STDOUT_FILENO)),
      separate_err_(process::same_file(STDOUT_FILENO, STDERR_FILENO)
                        ? nullptr
                        : std::make_unique<process::Sink>(loop_, STDERR_FILENO)),
      err_(separate_err_ ? *separate_err_ : *out_),
      processes_(
          loop_, std::move(options_.processes), *out_, err_,
          [this](const process::MemberExit& exit) { on_member_exit(exit); },
          [this] { leave_if_drained(); }),
      signals_(loop_, [this](int) { processes_.reap(); }),
      guardian_(
          loop_, std::move(guardian),
          [this](ControlMessage message, std::int32_t value, base::Fd fd) {
            on_control_message(message, value, std::move(fd));
          },
          [this] { on_guardian_lost(); }),
      job_(job(*this)) {
  if (options_.line) err_.share(options_.line.get());
}

base::Status Agent::report_usage() {
  if (!options_.usage.wanted()) return {};
  usage_ = std::make_unique<metrics::UsageReporter>(
      loop_, options_.usage, [this] { return processes_.usage_targets(); },
      [this](const std::string& text) { say(text); });
  return usage_->start();
}

int Agent::run() {
  process::become_subreaper();
  base::Status status = signals_.start({SIGCHLD});
  if (status.ok()) status = report_usage();
  if (status.ok()) status = job_->start();
  if (!status.ok()) fail_start(status.message());
  if (options_.timeout.count() > 0) {
    start_timer(timeout_, options_.timeout - options_.spent, [this] {
      say(ran_too_long(options_.timeout));
      terminate(unless_completed(options_.timeout_status));
      limit_drain(kDrainLimit);
    });
  }
  finish_if_over();
  loop_.run();
  return 0;
}

// Messages of members and hosts are dropped when standard error does not drain, so that they cannot
// exhaust memory.
void Agent::say(const std::string& text) {
  if (err_.kept() < kMostKept) err_.write("regroup: " + base::escaped_lines(text) + "\n");
}

void Agent::start_timer(boost::asio::steady_timer& timer, base::Duration after,
                        std::function<void()> then) {
  timer.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(after));
  timer.async_wait([then = std::move(then)](const boost::system::error_code& error) {
    if (!error) then();
  });
}

// A further request can only shorten the deadline.
void Agent::terminate(int exit_status, std::optional<base::Duration> grace) {
  const base::Duration within = grace.value_or(options_.term_grace);
  const auto kill = [this] { signal_all(SIGKILL); };
  if (ending()) {
    // Checkpoints that are being written get the new deadline, too.
    if (stage_ != Stage::kServing) return job_->on_notice(base::SystemClock().now() + within);
    if (grace_.expiry() - std::chrono::steady_clock::now() > within) {
      start_timer(grace_, within, kill);
      job_->on_notice(base::SystemClock().now() + within);
    }
    return;
  }
  exit_status_ = exit_status;
  job_->on_notice(base::SystemClock().now() + within);
  signal_all(SIGTERM);
  signal_all(SIGCONT);  // a stopped member handles SIGTERM only after SIGCONT
  start_timer(grace_, within, kill);
  finish_if_over();
}

void Agent::end_within(int exit_status, base::Duration within) {
  if (ending()) return;
  exit_status_ = exit_status;
  start_timer(grace_, within, [this] { signal_all(SIGKILL); });
  finish_if_over();
}

void Agent::end(int exit_status) {
  if (any_lives()) return terminate(exit_status);
  if (!ending()) exit_status_ = exit_status;
  finish_if_over();
}

void Agent::on_notice(std::optional<base::Duration> within) {
  if (within) within = std::max<base::Duration>(*within - kClearing, base::Duration::zero());
  const bool first = !ending() && !job_->completed();
  asked_ = asked_ || !ending();
  terminate(unless_completed(options_.notice_status.value_or(options_.stopped_status)), within);
  limit_drain(kDrainLimit);
  noticed_ = noticed_ || first;
  if (first && options_.noticed) options_.noticed();
}

void Agent::fail_start(const std::string& why) {
  say(why);
  kill(options_.start_failed_status);
}

void Agent::fail_start(const base::Status& why) {
  say(why.message());
  kill(status_of_failed_start(why));
}

int Agent::status_of_failed_start(const base::Status& why) const {
  constexpr int kNotInPath = 66, kNoFolder = 181, kNotExecutable = 183;  // Open MPI 5
  if (options_.start_failed_status != kStartFailed) return options_.start_failed_status;
  if (why.code() == base::Code::kInvalidArgument) return kNoFolder;
  if (why.code() != base::Code::kNotFound) return kStartFailed;
  return process::is_about_path(why) ? kNotExecutable : kNotInPath;
}

void Agent::kill(int exit_status) {
  if (!ending()) exit_status_ = exit_status;
  signal_all(SIGKILL);
  finish_if_over();
}

void Agent::watch_killed() {
  start_timer(killed_, options_.teardown_limit, [this] {
    processes_.leave_stuck();
    if (stage_ == Stage::kServing) watch_killed();
  });
}

void Agent::kill_without_state(int exit_status, int doubtful_hosts, std::uint64_t resumed) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (!ending())
    guardian_.send(ControlMessage::kResumed, static_cast<std::int32_t>(std::min(resumed, kMost)));
  if (!ending()) guardian_.send(ControlMessage::kStateLost, doubtful_hosts);
  kill(exit_status);
}

void Agent::signal_members(int signal) {
  processes_.signal_all(signal);
  if (signal == SIGKILL) watch_killed();
}

void Agent::signal_all(int signal) {
  signal_members(signal);
  if (OtherHosts* others = job_->others()) others->signal_all(signal);
}

void Agent::on_control_message(ControlMessage message, std::int32_t value, base::Fd fd) {
  switch (message) {
    case ControlMessage::kSignal:
      if (!job_->on_signal(value)) signal_all(value);
      return;
    case ControlMessage::kStop: {
      const bool users = value == SIGINT || value == SIGQUIT || value == SIGHUP;
      if (!users) return on_notice(std::nullopt);
      asked_ = asked_ || !ending();
      terminate(unless_completed(options_.stopped_status));
      return limit_drain(kDrainLimit);
    }
    case ControlMessage::kKill:
      kill(unless_completed(options_.stopped_status));
      return limit_drain(base::Duration::zero());
    case ControlMessage::kCoordinator:
      return job_->on_coordinator(std::move(fd), value);
    case ControlMessage::kResumed:
    case ControlMessage::kStateLost:
    case ControlMessage::kDone:
      return;
  }
}

void Agent::on_guardian_lost() {
  limit_drain(kDrainLimit);
  if (job_->orphan_timeout() <= base::Duration::zero()) return kill(1);
  const base::Duration all = job_->orphan_timeout();
  say(fmt::format("the launcher has ended: the job ends in {:g} s",
                  std::chrono::duration<double>(all).count()));
  if (!job_->keeps_checkpoints()) return start_timer(orphan_, all, [this] { kill(1); });
  // The last part of the orphan timeout is for members to leave and to save their state.
  const base::Duration last = std::min(options_.term_grace, all / 2);
  start_timer(orphan_, all - last, [this, last] { terminate(unless_completed(1), last); });
}

void Agent::on_member_exit(const process::MemberExit& exit) {
  job_->on_exit(exit);
  finish_if_over();
}

bool Agent::any_lives() const {
  const OtherHosts* const others = job_->others();
  return processes_.running() > 0 || (others != nullptr && others->running() > 0);
}

int Agent::unless_completed(int exit_status) const {
  return job_->completed().value_or(exit_status);
}

// Members may have completed the training after the end was requested.
void Agent::settle() {
  if (asked_) exit_status_ = unless_completed(*exit_status_);
  const std::string unsaved = job_->unsaved();
  if (unsaved.empty() || *exit_status_ != 0) return;
  exit_status_ = 1;
  say(fmt::format("the job failed: the training is complete, but {} (exit status 1)", unsaved));
}

// Runs once, when all members have ended and the job is being ended.
void Agent::finish_if_over() {
  if (stage_ != Stage::kServing || !ending() || any_lives()) return;
  stage_ = Stage::kFinishing;
  grace_.cancel();
  killed_.cancel();
  orphan_.cancel();
  job_->finish([this] {
    settle();
    clear_up();
  });
  start_drain_timer();
}

void Agent::clear_up() {
  if (stage_ >= Stage::kClearedUp) return;
  stage_ = Stage::kClearedUp;
  if (!process::kill_descendants(kKillLimit))
    say("a process that the job left behind could not be killed");
  processes_.finish_outputs();
  processes_.tell_exit_codes();
  leave_if_drained();
}

// A stalled reader of the output must not keep a job alive whose end was requested.
void Agent::limit_drain(base::Duration limit) {
  drain_limit_ = std::min(limit, drain_limit_.value_or(limit));
  if (stage_ != Stage::kServing) start_drain_timer();
}

void Agent::start_drain_timer() {
  if (!drain_limit_) return;
  const bool at_once = *drain_limit_ <= base::Duration::zero();
  start_timer(drain_, at_once ? *drain_limit_ : *drain_limit_ + job_->still_needs(), [this] {
    if (*exit_status_ == 0) exit_status_ = 1;  // output was lost
    clear_up();
    leave();
  });
}

void Agent::leave_if_drained() {
  if (stage_ != Stage::kClearedUp || processes_.outputs_busy()) return;
  for (process::Sink* sink : {out_.get(), &err_}) {
    if (sink->congested()) return sink->when_free([this] { leave_if_drained(); });
  }
  stage_ = Stage::kLeaving;
  job_->leave([this] { leave(); });
}

void Agent::leave() {
  if (processes_.output_lost() && *exit_status_ == 0) exit_status_ = 1;
  guardian_.send(ControlMessage::kDone, *exit_status_);
  loop_.stop();
}

}  // namespace regroup::agent
