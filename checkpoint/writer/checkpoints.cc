// Each checkpoint is written by a regroup-persist process of its own: an error, a crash or a slow
// disk affects that checkpoint only and does not delay training.
#include "checkpoint/writer/checkpoints.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/lock_owner.h"
#include "checkpoint/writer/final_checkpoint.h"
#include "checkpoint/writer/persist_task.h"
#include "launcher/process/app.h"
#include "launcher/process/due.h"
#include "launcher/process/environment.h"
#include "launcher/process/spawn.h"

namespace regroup::writer {
namespace {

using base::Result;
using base::Status;
using shmem::SaveMark;
using shmem::SaveRequest;
using Json = nlohmann::json;

// After this time without a response from the local directory, the user gets a message.
constexpr std::chrono::seconds kAnswerLimit(10);
// How long regroup-persist may take to release the lock.
constexpr std::chrono::seconds kReleaseLimit(5);
constexpr std::chrono::seconds kTryAgain(5);    // between two attempts to take the lock
constexpr std::chrono::seconds kSaveLimit(30);  // for a last save without a deadline
constexpr std::chrono::seconds kClaimLimit(1);  // for a waiting member to claim that save
constexpr std::string_view kHeld = "held";      // printed by regroup-persist once it holds the lock
constexpr int kAnotherJobs = 3;                 // its exit status if another job holds the lock

}  // namespace

Checkpoints::Checkpoints(boost::asio::io_context& loop, CheckpointPlan plan, std::string host,
                         std::function<const shmem::Arena&()> arena, Say say, bool quiet)
    : plan_(std::move(plan)),
      host_(std::move(host)),
      arena_(std::move(arena)),
      say_(std::move(say)),
      quiet_(quiet),
      loop_(loop),
      end_timer_(loop),
      lock_timer_(loop),
      last_(loop, arena_) {}

Checkpoints::~Checkpoints() {
  if (process_) process_->abandon();
  if (check_) check_->abandon();
  if (copy_) copy_->abandon();
}

void Checkpoints::start() {
  if (host_.empty() && plan_.resume && !quiet_) say_(resumes(plan_));
  if (host_.empty() || plan_.directory.empty()) return;
  if (plan_.shared.empty())
    check_directory();
  else
    lock_local_directory();
}

// A new arena is made while the old one exists, so its descriptor differs.
void Checkpoints::look_for_arena() {
  const shmem::Arena& arena = arena_();
  if (plan_.every == 0 || !arena.mapped() || arena.memfd() == watched_) return;
  watched_ = arena.memfd();
  watcher_.reset();
  if (arena.save_area().empty()) return;
  auto watcher = CheckpointWatcher::start(loop_, arena, [this] { poll(); });
  if (watcher.ok())
    watcher_ = std::move(*watcher);
  else
    say_(fmt::format("no checkpoints are made: {}", watcher.status().message()));
}

// Checks in another process, since a file system that hangs must not block the agent.
void Checkpoints::check_directory() {
  run_check({"regroup-persist", "owner", plan_.directory, plan_.job});
}

// Starts a process that locks the local directory and holds the lock as long as this process lives.
// (If the directory is shared, the agent of another host may hold the lock for the same job.) That
// process first copies a newer checkpoint from there; nothing is written until then.
void Checkpoints::lock_local_directory() {
  const proto::Step after = plan_.resume ? plan_.resume->step : 0;
  locking_ = true;
  lock_timer_.expires_after(kAnswerLimit);
  lock_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || !locking_ || !process::is_due(lock_timer_)) return;
    report_not_locked(fmt::format("{}: no answer for {} s", plan_.directory, kAnswerLimit.count()));
  });
  run_check({"regroup-persist", "hold", plan_.directory, plan_.shared, plan_.job,
             std::to_string(after), base::lock_owner(plan_.job)});
}

// Reports each reason once. From then on the end of the job does not wait for the directory.
void Checkpoints::report_not_locked(const std::string& why) {
  hangs_ = true;
  if (std::exchange(not_locked_why_, why) != why)
    say_(fmt::format("host {}: no checkpoints are made here yet: {}", host_, why));
  poll();
}

// Another job holds the lock; perhaps an earlier one that has not ended on this host yet, for
// example because the host was cut off.
void Checkpoints::retry_lock() {
  lock_timer_.expires_after(kTryAgain);
  lock_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && locking_ && process::is_due(lock_timer_)) lock_local_directory();
  });
  report_not_locked(std::exchange(check_error_, {}));
}

// Runs regroup-persist. If it fails, nothing is written on this host. The user gets its output.
void Checkpoints::run_check(std::vector<std::string> argv) {
  process::SpawnSpec spec;
  spec.path = process::find_helper("regroup-persist");
  spec.argv = std::move(argv);
  const auto said = [this](std::string_view line, bool error) {
    if (!error && locking_ && line == kHeld) return on_lock_settled(/*held=*/true);
    if (error)
      check_error_ += (check_error_.empty() ? "" : "; ") + std::string(line);
    else
      say_(fmt::format("host {}: {}", host_, line));
  };
  const auto ended = [this](int status) { on_check_ended(status); };
  auto started = process::PipedProcess::start(loop_, std::move(spec), {said, ended});
  if (started.ok()) {
    check_ = *started;
  } else {
    check_error_ = started.status().message();
    on_check_ended(W_EXITCODE(1, 0));
  }
}

void Checkpoints::on_check_ended(int wait_status) {
  check_.reset();
  const bool another = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kAnotherJobs;
  if (locking_ && another && !then_) return retry_lock();
  const std::string why = std::exchange(check_error_, {});
  if (wait_status != 0 && (!then_ || !why.empty()))
    say_(fmt::format("host {}: {}: {}", host_,
                     held_ ? "the lock of " + plan_.directory + " is lost"
                           : "no checkpoints are written or read here",
                     why.empty() ? silent_end(wait_status) : why));
  held_ = releasing_ = false;
  if (locking_ && wait_status == 0) return on_lock_settled(/*held=*/false);
  if (locking_) not_locked_why_ = why;
  unusable_ |= std::exchange(locking_, false);
  poll();
}

void Checkpoints::on_lock_settled(bool held) {
  locking_ = hangs_ = false;
  held_ = held;
  process::call_off(lock_timer_);
  poll();
}

void Checkpoints::abandon_check() {
  if (check_) std::exchange(check_, {})->abandon();
  lock_timer_.cancel();
  locking_ = held_ = releasing_ = false;
}

// Releases the lock before the job ends, so that the job can be started again at once. False: there
// is nothing to wait for.
bool Checkpoints::release_local_directory() {
  if (!check_ || !std::exchange(held_, false)) return false;
  releasing_ = true;
  check_->close_input();
  const base::TimePoint limit = base::SystemClock().now() + kReleaseLimit;
  end_by(deadline_ ? std::min(*deadline_, limit) : limit);
  return true;
}

void Checkpoints::poll() {
  const shmem::Arena& arena = arena_();
  const bool there = arena.mapped() && !arena.save_area().empty();
  const auto mark =
      there ? SaveMark::unpack(arena.save_word().load(std::memory_order_acquire)) : SaveMark{};
  last_.set_hangs((locking_ && hangs_) || unusable_);
  if (!process_ && !locking_ && !stopped_ && !unusable_ && mark.phase == SaveMark::Phase::kReady)
    write(mark.step);
  last_.on_rung();
  // The end of each of these processes calls poll() again.
  if (process_ || copy_ || (locking_ && !hangs_) || releasing_) return;
  if (!then_ || release_local_directory()) return;
  if (hangs_ && mark.phase == SaveMark::Phase::kReady)
    say_(fmt::format("the checkpoint of step {} is lost: {}", mark.step, not_locked_why_));
  if (hangs_) abandon_check();
  if (const std::string outcome = last_.outcome(); !outcome.empty() && !quiet_) say_(outcome);
  std::exchange(then_, {})();
}

void Checkpoints::finish(std::function<void()> then) {
  then_ = std::move(then);
  if (!process_) poll();
  if (process_ || copy_ || (locking_ && !hangs_))
    end_by(deadline_.value_or(base::SystemClock().now() + kDiskLimit));
}

// Ends writing at `deadline`: a disk that hangs loses the checkpoint that is being written, but not
// the one before it.
void Checkpoints::end_by(base::TimePoint deadline) {
  end_timer_.expires_at(std::chrono::steady_clock::time_point(deadline.time_since_epoch()));
  end_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || !process::is_due(end_timer_)) return;
    cut_off_ = deadline_ ? "no time was left to write it"
                         : fmt::format("nothing was written for {} s", kDiskLimit.count());
    stopped_ = true;
    if (process_) process_->kill();
    if (copy_) copy_->kill();
    abandon_check();
    poll();
  });
}

void Checkpoints::on_notice(base::TimePoint deadline) {
  if (plan_.every == 0 || (deadline_ && deadline >= *deadline_)) return;
  const bool further = std::exchange(deadline_, deadline).has_value();
  end_by(deadline);
  if (further) return;
  if (!process_ && !last_.can_request()) {
    if (!quiet_ && last_.newest() == 0) say_("no final checkpoint: no member has completed a step");
    return;
  }
  const FinalCheckpointDecision choice = choose();
  stopped_ = choice.what == FinalCheckpointDecision::What::kKeep;
  if (!quiet_) say_(fmt::format("{}: {}", name_of(choice.what), choice.why));
  if (stopped_) cut_off_ = "too little time was left to write it";
  if (stopped_ && process_) process_->kill();
  if (stopped_ || !last_.can_request()) return;
  using What = SaveRequest::What;
  last_.request(
      choice.what == FinalCheckpointDecision::What::kPersist ? What::kAtBoundary : What::kLater,
      copied_by(base::SystemClock().now(), *deadline_, arena_().spec().snapshot_bytes, bandwidth_));
  const base::TimePoint now = base::SystemClock().now();
  last_.include_waiting_at(now + (deadline - now) / 2);
}

// Requests the next save after an older one was written: members have continued meanwhile, and
// may be waiting for this request.
void Checkpoints::request_after_writing() {
  using What = SaveRequest::What;
  if (!last_.requested() || stopped_ || !last_.can_request()) return;
  if (!deadline_) return last_.request_again(What::kNow);
  const bool newer = last_.newest() > writing_;
  const FinalCheckpointDecision choice = choose();
  const bool persist = choice.what == FinalCheckpointDecision::What::kPersist;
  if (!quiet_ && newer) say_(fmt::format("{}: {}", name_of(choice.what), choice.why));
  if (!persist) return newer ? last_.withdraw() : last_.request_again(What::kNone);
  last_.request(
      last_.includes_waiting() ? What::kNow : What::kAtBoundary,
      copied_by(base::SystemClock().now(), *deadline_, arena_().spec().snapshot_bytes, bandwidth_));
}

void Checkpoints::save_now(std::function<void()> then) {
  if (plan_.every == 0 || deadline_ || stopped_ || unusable_ || !last_.can_request()) return then();
  if (!quiet_) say_("a final checkpoint is written before the end: the job has failed");
  last_.request(SaveRequest::What::kNow, base::SystemClock().now() + kSaveLimit);
  last_.await(kClaimLimit, std::move(then));
}

FinalCheckpointDecision Checkpoints::choose() const {
  const base::TimePoint now = base::SystemClock().now();
  Remaining remaining{{}, {}, arena_().spec().snapshot_bytes, bandwidth_, *deadline_ - now};
  if (process_) remaining.writing = writing_, remaining.since = now - since_;
  remaining.copied = !host_.empty() && !plan_.shared.empty();
  remaining.copy_bandwidth = copy_bandwidth_;
  if (copy_) remaining.copying = now - copying_since_;
  return decide_final_checkpoint(remaining);
}

base::Duration Checkpoints::still_needs() const {
  if ((!process_ && !copy_) || !deadline_) return base::Duration::zero();
  return std::max(base::Duration::zero(), *deadline_ - base::SystemClock().now());
}

}  // namespace regroup::writer
