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

// For a local directory to answer, until a message.
constexpr std::chrono::seconds kAnswerLimit(10);
// For the process that holds its lock to release it.
constexpr std::chrono::seconds kReleaseLimit(5);
constexpr std::chrono::seconds kTryAgain(5);    // until the next try to lock it
constexpr std::chrono::seconds kSaveLimit(30);  // for a last snapshot without a deadline ...
constexpr std::chrono::seconds kClaimLimit(1);  // ... and for a waiting member to claim it
constexpr std::string_view kHeld = "held";  // regroup-persist prints it once it holds the lock ...
constexpr int kAnotherJobs = 3;             // ... and exits so if another job holds it

}  // namespace

Checkpoints::Checkpoints(boost::asio::io_context& loop, CheckpointPlan plan, std::string host,
                         std::function<const shmem::Arena&()> arena, Say say, bool quiet)
    : plan_(std::move(plan)),
      host_(std::move(host)),
      arena_(std::move(arena)),
      say_(std::move(say)),
      quiet_(quiet),
      loop_(loop),
      limit_(loop),
      late_(loop),
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
    take_own();
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

// In another process: a file system that hangs must not block the agent.
void Checkpoints::check_directory() {
  check({"regroup-persist", "owner", plan_.directory, plan_.job});
}

// Locks this host's local directory by a process that holds the lock as long as this one lives. If
// another host sees the same directory, it may hold it for the same job. A newer checkpoint there
// is copied first, and nothing is written until then.
void Checkpoints::take_own() {
  const proto::Step after = plan_.resume ? plan_.resume->step : 0;
  taking_ = true;
  late_.expires_after(kAnswerLimit);
  late_.async_wait([this](const boost::system::error_code& error) {
    if (error || !taking_ || !process::is_due(late_)) return;
    not_ours_yet(fmt::format("{}: no answer for {} s", plan_.directory, kAnswerLimit.count()));
  });
  check({"regroup-persist", "hold", plan_.directory, plan_.shared, plan_.job, std::to_string(after),
         base::lock_owner(plan_.job)});
}

// Reports each reason once. The end of the job does not wait for the directory.
void Checkpoints::not_ours_yet(const std::string& why) {
  hangs_ = true;
  if (std::exchange(not_yet_, why) != why)
    say_(fmt::format("host {}: no checkpoints are made here yet: {}", host_, why));
  poll();
}

// An earlier job may not have ended on this host yet, for example because the host was cut off.
void Checkpoints::take_again() {
  late_.expires_after(kTryAgain);
  late_.async_wait([this](const boost::system::error_code& error) {
    if (!error && taking_ && process::is_due(late_)) take_own();
  });
  not_ours_yet(std::exchange(check_error_, {}));
}

// Runs regroup-persist; its errors mean that nothing is written here, and its other output goes to
// the user.
void Checkpoints::check(std::vector<std::string> argv) {
  process::SpawnSpec spec;
  spec.path = process::find_helper("regroup-persist");
  spec.argv = std::move(argv);
  const auto said = [this](std::string_view line, bool error) {
    if (!error && taking_ && line == kHeld) return taken(/*held=*/true);
    if (error)
      check_error_ += (check_error_.empty() ? "" : "; ") + std::string(line);
    else
      say_(fmt::format("host {}: {}", host_, line));
  };
  const auto ended = [this](int status) { checked(status); };
  auto started = process::PipedProcess::start(loop_, std::move(spec), {said, ended});
  if (started.ok()) {
    check_ = *started;
  } else {
    check_error_ = started.status().message();
    checked(W_EXITCODE(1, 0));
  }
}

void Checkpoints::checked(int wait_status) {
  check_.reset();
  const bool another = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kAnotherJobs;
  if (taking_ && another && !then_) return take_again();
  const std::string why = std::exchange(check_error_, {});
  if (wait_status != 0 && (!then_ || !why.empty()))
    say_(fmt::format("host {}: {}: {}", host_,
                     held_ ? "the lock of " + plan_.directory + " is lost"
                           : "no checkpoints are written or read here",
                     why.empty() ? silent_end(wait_status) : why));
  held_ = releasing_ = false;
  if (taking_ && wait_status == 0) return taken(/*held=*/false);
  if (taking_) not_yet_ = why;
  barred_ |= std::exchange(taking_, false);
  poll();
}

void Checkpoints::taken(bool held) {
  taking_ = hangs_ = false;
  held_ = held;
  process::call_off(late_);
  poll();
}

void Checkpoints::drop_check() {
  if (check_) std::exchange(check_, {})->abandon();
  late_.cancel();
  taking_ = held_ = releasing_ = false;
}

// Releases the directory before the job ends, so that the next start of the job finds it free.
// False: there is nothing to wait for.
bool Checkpoints::release_own() {
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
  last_.set_hangs((taking_ && hangs_) || barred_);
  if (!process_ && !taking_ && !keep_ && !barred_ && mark.phase == SaveMark::Phase::kReady)
    write(mark.step);
  last_.on_rung();
  if (process_ || copy_ || (taking_ && !hangs_) || releasing_) return;  // their ends go on
  if (!then_ || release_own()) return;
  if (hangs_ && mark.phase == SaveMark::Phase::kReady)
    say_(fmt::format("the checkpoint of step {} is lost: {}", mark.step, not_yet_));
  if (hangs_) drop_check();
  if (const std::string outcome = last_.outcome(); !outcome.empty() && !quiet_) say_(outcome);
  std::exchange(then_, {})();
}

void Checkpoints::finish(std::function<void()> then) {
  then_ = std::move(then);
  if (!process_) poll();
  if (process_ || copy_ || (taking_ && !hangs_))
    end_by(deadline_.value_or(base::SystemClock().now() + kDiskLimit));
}

// Ends writing at `deadline`: a disk that hangs loses the checkpoint that is being written; the one
// before stays.
void Checkpoints::end_by(base::TimePoint deadline) {
  limit_.expires_at(std::chrono::steady_clock::time_point(deadline.time_since_epoch()));
  limit_.async_wait([this](const boost::system::error_code& error) {
    if (error || !process::is_due(limit_)) return;
    cut_off_ = deadline_ ? "no time was left to write it"
                         : fmt::format("nothing was written for {} s", kDiskLimit.count());
    keep_ = true;
    if (process_) process_->kill();
    if (copy_) copy_->kill();
    drop_check();
    poll();
  });
}

void Checkpoints::on_notice(base::TimePoint deadline) {
  if (plan_.every == 0 || (deadline_ && deadline >= *deadline_)) return;
  const bool further = std::exchange(deadline_, deadline).has_value();
  end_by(deadline);
  if (further) return;
  if (!process_ && !last_.can_ask()) {
    if (!quiet_ && last_.newest() == 0) say_("no final checkpoint: no member has completed a step");
    return;
  }
  const FinalCheckpointDecision choice = choose();
  keep_ = choice.what == FinalCheckpointDecision::What::kKeep;
  if (!quiet_) say_(fmt::format("{}: {}", name_of(choice.what), choice.why));
  if (keep_) cut_off_ = "too little time was left to write it";
  if (keep_ && process_) process_->kill();
  if (keep_ || !last_.can_ask()) return;
  using What = SaveRequest::What;
  last_.ask(
      choice.what == FinalCheckpointDecision::What::kPersist ? What::kAtBoundary : What::kLater,
      copied_by(base::SystemClock().now(), *deadline_, arena_().spec().snapshot_bytes, bandwidth_));
  const base::TimePoint now = base::SystemClock().now();
  last_.insist_at(now + (deadline - now) / 2);
}

// Requests the next snapshot after an older one was written: members have gone on meanwhile and may
// wait for it, or one is about to end its step.
void Checkpoints::ask_after_writing() {
  using What = SaveRequest::What;
  if (!last_.awaited() || keep_ || !last_.can_ask()) return;
  if (!deadline_) return last_.ask_on(What::kNow);
  const bool newer = last_.newest() > writing_;
  const FinalCheckpointDecision choice = choose();
  const bool persist = choice.what == FinalCheckpointDecision::What::kPersist;
  if (!quiet_ && newer) say_(fmt::format("{}: {}", name_of(choice.what), choice.why));
  if (!persist) return newer ? last_.call_off() : last_.ask_on(What::kNone);
  last_.ask(
      last_.insists() ? What::kNow : What::kAtBoundary,
      copied_by(base::SystemClock().now(), *deadline_, arena_().spec().snapshot_bytes, bandwidth_));
}

void Checkpoints::save_now(std::function<void()> then) {
  if (plan_.every == 0 || deadline_ || keep_ || barred_ || !last_.can_ask()) return then();
  if (!quiet_) say_("a final checkpoint is written before the end: the job has failed");
  last_.ask(SaveRequest::What::kNow, base::SystemClock().now() + kSaveLimit);
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
