// directory_stage.h says what follows from each event; here the process and the timer cause them.
#include "checkpoint/writer/local_directory.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <chrono>
#include <string_view>
#include <utility>

#include "base/lock_owner.h"
#include "checkpoint/writer/persist_process.h"
#include "launcher/process/due.h"

namespace regroup::writer {
namespace {

// After this time without a response from the directory, the user gets a message.
constexpr std::chrono::seconds kAnswerLimit(10);
constexpr std::chrono::seconds kTryAgain(5);    // between two attempts to take the lock
constexpr std::string_view kLockHeld = "held";  // printed by regroup-persist once it holds the lock
constexpr int kAnotherJobs = 3;                 // its exit status if another job holds the lock

}  // namespace

LocalDirectory::LocalDirectory(boost::asio::io_context& loop, const spec::CheckpointPlan& plan,
                               std::string host, std::string program, Events events)
    : plan_(plan),
      host_(std::move(host)),
      program_(std::move(program)),
      events_(std::move(events)),
      loop_(loop),
      timer_(loop) {}

LocalDirectory::~LocalDirectory() {
  if (process_) process_->abandon();
}

void LocalDirectory::check() { run({"owner", plan_.directory, plan_.job}); }

void LocalDirectory::lock() {
  const proto::Step after = plan_.resume ? plan_.resume->step : 0;
  apply(DirectoryEvent::kStarted);
  timer_.expires_after(kAnswerLimit);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || !is_locking(stage_) || !process::is_due(timer_)) return;
    on_delay(fmt::format("{}: no answer for {} s", plan_.directory, kAnswerLimit.count()));
  });
  run({"hold", plan_.directory, plan_.shared, plan_.job, std::to_string(after),
       base::lock_owner(plan_.job)});
}

// If the process fails, nothing is written on this host. The user gets its output.
void LocalDirectory::run(std::vector<std::string> words) {
  auto started = start_persist(loop_, program_, std::move(words), -1,
                               {[this](std::string_view line, bool error) { on_line(line, error); },
                                [this](int wait_status) { on_ended(wait_status); }});
  if (started.ok()) {
    process_ = *started;
  } else {
    errors_ = started.status().message();
    on_ended(W_EXITCODE(1, 0));
  }
}

void LocalDirectory::on_line(std::string_view line, bool error) {
  if (error) return add_error(line, &errors_);
  if (is_locking(stage_) && line == kLockHeld) return on_settled(DirectoryEvent::kLocked);
  events_.say(fmt::format("host {}: {}", host_, line));
}

// Reports each reason once. From then on the end of the job does not wait for the directory.
void LocalDirectory::on_delay(const std::string& why) {
  apply(DirectoryEvent::kDelayed);
  if (std::exchange(why_not_locked_, why) != why)
    events_.say(fmt::format("host {}: no checkpoints are made here yet: {}", host_, why));
  events_.changed();
}

// Another job holds the lock; perhaps an earlier one that has not ended on this host yet, for
// example because the host was cut off.
void LocalDirectory::retry() {
  timer_.expires_after(kTryAgain);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && is_locking(stage_) && process::is_due(timer_)) lock();
  });
  on_delay(std::exchange(errors_, {}));
}

void LocalDirectory::on_ended(int wait_status) {
  process_.reset();
  const bool another = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kAnotherJobs;
  if (is_locking(stage_) && another && !job_is_over_) return retry();
  const std::string why = std::exchange(errors_, {});
  if (wait_status != 0 && (!job_is_over_ || !why.empty()))
    events_.say(fmt::format("host {}: {}: {}", host_,
                            stage_ == DirectoryStage::kHeld
                                ? "the lock of " + plan_.directory + " is lost"
                                : "no checkpoints are written or read here",
                            why.empty() ? silent_end(wait_status) : why));
  if (wait_status == 0 && is_locking(stage_)) return on_settled(DirectoryEvent::kEnded);
  if (is_locking(stage_)) why_not_locked_ = why;
  apply(wait_status == 0 ? DirectoryEvent::kEnded : DirectoryEvent::kFailed);
  events_.changed();
}

void LocalDirectory::on_settled(DirectoryEvent event) {
  apply(event);
  process::call_off(timer_);
  events_.changed();
}

bool LocalDirectory::release() {
  if (!process_ || stage_ != DirectoryStage::kHeld) return false;
  apply(DirectoryEvent::kReleased);
  process_->close_input();
  return true;
}

void LocalDirectory::abandon() {
  if (process_) std::exchange(process_, {})->abandon();
  timer_.cancel();
  apply(DirectoryEvent::kAbandoned);
}

}  // namespace regroup::writer
