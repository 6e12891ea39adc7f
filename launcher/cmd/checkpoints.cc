// One regroup-persist for each checkpoint: an error, a crash or a slow disk costs that one and holds up
// nobody.
#include "launcher/cmd/checkpoints.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/lock_owner.h"
#include "launcher/cmd/last_checkpoint.h"
#include "launcher/supervise/app.h"
#include "launcher/supervise/due.h"
#include "launcher/supervise/environment.h"
#include "launcher/supervise/spawn.h"

namespace regroup::cmd {
namespace {

using core::Result;
using core::SaveMark;
using core::SaveRequest;
using core::Status;
using Json = nlohmann::json;

constexpr std::chrono::seconds kFinishLimit(600);  // of a checkpoint that is being written when the job ends
constexpr std::chrono::seconds kAnswerLimit(10);   // of a host's own directory, before that is told
constexpr std::chrono::seconds kReleaseLimit(5);   // of whoever has its lock
constexpr std::chrono::seconds kTryAgain(5);       // whether another job has given it back
constexpr std::chrono::seconds kSaveLimit(30);     // of a last snapshot, where no deadline was given ...
constexpr std::chrono::seconds kClaimLimit(1);     // ... and for a member that waits to begin with it
constexpr std::string_view kHeld = "held";         // as regroup-persist says it ...
constexpr int kAnotherJobs = 3;                    // ... and how it ends where another job has the directory
constexpr double kMiB = 1 << 20;

// Of a process that said nothing.
std::string silent_end(int wait_status) {
  return WIFSIGNALED(wait_status) ? fmt::format("regroup-persist: killed by signal {}", WTERMSIG(wait_status))
                                  : "regroup-persist ended without a word";
}

}  // namespace

Checkpoints::Checkpoints(boost::asio::io_context& loop, CheckpointPlan plan, std::string host,
                         std::function<const core::Arena&()> arena, Say say, bool quiet)
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

// A new one is made while the old one is there: its descriptor is another.
void Checkpoints::look_for_arena() {
  const core::Arena& arena = arena_();
  if (plan_.every == 0 || !arena.mapped() || arena.memfd() == watched_) return;
  watched_ = arena.memfd();
  watcher_.reset();
  if (arena.save_area().empty()) return;
  auto watcher = SaveWatcher::start(loop_, arena, [this] { poll(); });
  if (watcher.ok())
    watcher_ = std::move(*watcher);
  else
    say_(fmt::format("no checkpoints are made: {}", watcher.status().message()));
}

// Not by this process: a file system that hangs would take the host's members with it.
void Checkpoints::check_directory() { check({"regroup-persist", "owner", plan_.directory, plan_.job}); }

// On this host's own disk, by a process that has the lock as long as we live. Should another host see the
// same directory, that one has it for this job, too. What is newer there goes first: until then nothing is
// written.
void Checkpoints::take_own() {
  const core::Step after = plan_.resume ? plan_.resume->step : 0;
  taking_ = true;
  late_.expires_after(kAnswerLimit);
  late_.async_wait([this](const boost::system::error_code& error) {
    if (error || !taking_ || !launcher::is_due(late_)) return;
    not_ours_yet(fmt::format("{} has not answered for {} s", plan_.directory, kAnswerLimit.count()));
  });
  check({"regroup-persist", "hold", plan_.directory, plan_.shared, plan_.job, std::to_string(after),
         core::lock_owner(plan_.job)});
}

// Said once. The job does not wait for it when it ends.
void Checkpoints::not_ours_yet(const std::string& why) {
  hangs_ = true;
  if (std::exchange(not_yet_, why) != why)
    say_(fmt::format("host {}: no checkpoints are made here yet: {}", host_, why));
  poll();
}

// The one before this job may not have ended here yet: its host was cut off, say, or its disk is slow.
void Checkpoints::take_again() {
  late_.expires_after(kTryAgain);
  late_.async_wait([this](const boost::system::error_code& error) {
    if (!error && taking_ && launcher::is_due(late_)) take_own();
  });
  not_ours_yet(std::exchange(check_error_, {}));
}

// Errors mean that nothing is written here; what else it says is for the user.
void Checkpoints::check(std::vector<std::string> argv) {
  launcher::SpawnSpec spec;
  spec.path = launcher::find_helper("regroup-persist");
  spec.argv = std::move(argv);
  const auto said = [this](std::string_view line, bool error) {
    if (!error && taking_ && line == kHeld) return taken(/*held=*/true);
    if (error)
      check_error_ += (check_error_.empty() ? "" : "; ") + std::string(line);
    else
      say_(fmt::format("host {}: {}", host_, line));
  };
  const auto ended = [this](int status) { checked(status); };
  auto started = launcher::PipedProcess::start(loop_, std::move(spec), {said, ended});
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
                           : "no checkpoints are made here, and none is read",
                     why.empty() ? silent_end(wait_status) : why));
  held_ = releasing_ = false;
  if (taking_ && wait_status == 0) return taken(/*held=*/false);
  barred_ |= std::exchange(taking_, false);
  poll();
}

void Checkpoints::taken(bool held) {
  taking_ = hangs_ = false;
  held_ = held;
  launcher::call_off(late_);
  poll();
}

void Checkpoints::drop_check() {
  if (check_) std::exchange(check_, {})->abandon();
  late_.cancel();
  taking_ = held_ = releasing_ = false;
}

// Whoever starts this job again is to find the directory free. False: there is nothing to wait for.
bool Checkpoints::release_own() {
  if (!check_ || !std::exchange(held_, false)) return false;
  releasing_ = true;
  check_->close_input();
  const core::TimePoint limit = core::SystemClock().now() + kReleaseLimit;
  end_by(deadline_ ? std::min(*deadline_, limit) : limit);
  return true;
}

void Checkpoints::poll() {
  const core::Arena& arena = arena_();
  const bool there = arena.mapped() && !arena.save_area().empty();
  const auto mark = there ? SaveMark::unpack(arena.save_word().load(std::memory_order_acquire)) : SaveMark{};
  last_.set_hangs((taking_ && hangs_) || barred_);
  if (!process_ && !taking_ && !keep_ && !barred_ && mark.phase == SaveMark::Phase::kReady) write(mark.step);
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
    end_by(deadline_.value_or(core::SystemClock().now() + kFinishLimit));
}

// A disk that hangs costs what is being written: the checkpoint before stays.
void Checkpoints::end_by(core::TimePoint deadline) {
  limit_.expires_at(std::chrono::steady_clock::time_point(deadline.time_since_epoch()));
  limit_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    keep_ = true;
    if (process_) process_->kill();
    if (copy_) copy_->kill();
    drop_check();
    poll();
  });
}

void Checkpoints::on_notice(core::TimePoint deadline) {
  if (plan_.every == 0 || (deadline_ && deadline >= *deadline_)) return;
  const bool further = std::exchange(deadline_, deadline).has_value();
  end_by(deadline);
  if (further) return;
  if (!process_ && !last_.can_ask()) {
    if (!quiet_ && last_.newest() == 0) say_("no last checkpoint is made: no member has taken a step");
    return;
  }
  const LastChoice choice = choose();
  keep_ = choice.what == LastChoice::What::kKeep;
  if (!quiet_) say_(fmt::format("{}: {}", name_of(choice.what), choice.why));
  if (keep_ && process_) process_->kill();
  if (keep_ || !last_.can_ask()) return;
  using What = SaveRequest::What;
  last_.ask(choice.what == LastChoice::What::kPersist ? What::kAtBoundary : What::kLater,
            copied_by(core::SystemClock().now(), *deadline_, arena_().spec().snapshot_bytes, bandwidth_));
  const core::TimePoint now = core::SystemClock().now();
  last_.insist_at(now + (deadline - now) / 2);
}

// While an older one was being written its members have gone on, and may wait for what follows.
void Checkpoints::ask_after_writing() {
  if (!last_.awaited() || !deadline_ || keep_ || !last_.can_ask() || last_.newest() <= writing_) return;
  const LastChoice choice = choose();
  const bool persist = choice.what == LastChoice::What::kPersist;
  if (!quiet_) say_(fmt::format("{}: {}", name_of(choice.what), choice.why));
  if (!persist) return last_.call_off();
  using What = SaveRequest::What;
  last_.ask(last_.insists() ? What::kNow : What::kAtBoundary,
            copied_by(core::SystemClock().now(), *deadline_, arena_().spec().snapshot_bytes, bandwidth_));
}

void Checkpoints::save_now(std::function<void()> then) {
  if (plan_.every == 0 || deadline_ || keep_ || barred_ || !last_.can_ask()) return then();
  if (!quiet_) say_("a last checkpoint is made before the end: the job has failed");
  last_.ask(SaveRequest::What::kNow, core::SystemClock().now() + kSaveLimit);
  last_.await(kClaimLimit, std::move(then));
}

LastChoice Checkpoints::choose() const {
  const core::TimePoint now = core::SystemClock().now();
  Remaining remaining{{}, {}, arena_().spec().snapshot_bytes, bandwidth_, *deadline_ - now};
  if (process_) remaining.writing = writing_, remaining.since = now - since_;
  remaining.copied = !host_.empty() && !plan_.shared.empty();
  remaining.copy_bandwidth = copy_bandwidth_;
  if (copy_) remaining.copying = now - copying_since_;
  return choose_last(remaining);
}

core::Duration Checkpoints::still_needs() const {
  if ((!process_ && !copy_) || !deadline_) return core::Duration::zero();
  return std::max(core::Duration::zero(), *deadline_ - core::SystemClock().now());
}

// The member's own, with what only we know. The arena is as the member left it, who may be dead by now.
Result<std::string> Checkpoints::description(core::Step step) const {
  const std::span<std::byte> area = arena_().save_area();
  const core::SaveHeader& header = core::save_header(area);
  const std::uint64_t offset = header.offset, bytes = header.bytes;  // members may change them: read once
  if (offset > area.size() || bytes > area.size() - offset)
    return core::internal_error("the snapshot's description is damaged");
  const auto* text = reinterpret_cast<const char*>(area.data()) + offset;
  Json json = Json::parse(text, text + bytes, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || json["step"] != step)
    return core::internal_error("the snapshot's description is damaged");
  if (json.contains("error")) return Status(core::Code::kResourceExhausted, json["error"].dump());
  json["directory"] = plan_.directory;
  json["uuid"] = fmt::format("{}-{}-{}", plan_.job, arena_().spec().node, attempts_);
  json["fenced"] = true;
  json["job"] = plan_.job;
  json["seed"] = plan_.seed;
  json["shards"] = plan_.shards;
  json["keep_last"] = plan_.keep_last;
  json["keep_every"] = plan_.keep_every;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Checkpoints::write(core::Step step) {
  ++attempts_;
  const auto text = description(step);
  launcher::SpawnSpec spec;
  spec.path = launcher::find_helper("regroup-persist");
  spec.argv = {"regroup-persist", "write", std::to_string(launcher::kInheritedFd)};
  spec.inherited = arena_().memfd();
  acknowledged_ = false;
  error_.clear();
  auto started = !text.ok() ? Result<std::shared_ptr<launcher::PipedProcess>>(text.status())
                            : launcher::PipedProcess::start(
                                  loop_, std::move(spec),
                                  {[this](std::string_view line, bool error) {
                                     if (!error) acknowledged_ |= line == std::to_string(writing_);
                                     if (error) error_ += (error_.empty() ? "" : "; ") + std::string(line);
                                   },
                                   [this](int wait_status) { written(wait_status); }});
  if (!started.ok()) {
    say_(fmt::format("the checkpoint of step {} failed: {}", step, started.status().message()));
    return free_area(step);
  }
  writing_ = step;
  bytes_ = arena_().spec().snapshot_bytes;
  since_ = core::SystemClock().now();
  arena_().save_word().store(SaveMark{SaveMark::Phase::kTaken, step}.pack(), std::memory_order_release);
  process_ = *started;
  process_->feed(*text + "\n");
}

void Checkpoints::free_area(core::Step step) {
  arena_().save_word().store(SaveMark{SaveMark::Phase::kIdle, step}.pack(), std::memory_order_release);
}

void Checkpoints::written(int wait_status) {
  process_.reset();
  const double seconds = std::chrono::duration<double>(core::SystemClock().now() - since_).count();
  if (!acknowledged_) {
    say_(fmt::format("the checkpoint of step {} failed, the one before stays: {}", writing_,
                     !error_.empty() ? error_ : silent_end(wait_status)));
  } else if (bandwidth_ = static_cast<double>(bytes_) / std::max(seconds, 1e-3); !quiet_) {
    say_(fmt::format("checkpoint of step {}: in {} after {:.2f} s ({:.0f} MiB/s{})", writing_,
                     plan_.directory, seconds, static_cast<double>(bytes_) / kMiB / std::max(seconds, 1e-3),
                     host_.empty() ? "" : ", by host " + host_));
    if (!error_.empty()) say_(error_);
  }
  if (const core::Step newest = last_.newest(); newest >= writing_ + plan_.every && !quiet_)
    say_(fmt::format("the checkpoint due after step {} waited for the disk: step {} is done (--every {})",
                     (writing_ / plan_.every + 1) * plan_.every, newest, plan_.every));
  free_area(writing_);
  last_.wrote();
  if (acknowledged_) committed_ = writing_, copy();
  ask_after_writing();
  poll();
}

// Behind the training and behind the next checkpoint: a slow second directory gets fewer of them.
void Checkpoints::copy() {
  if (plan_.shared.empty()) return;
  copy_again_ = copy_ != nullptr;
  if (copy_) return;
  launcher::SpawnSpec spec;
  spec.path = launcher::find_helper("regroup-persist");
  spec.argv = {"regroup-persist",
               "copy",
               plan_.directory,
               plan_.shared,
               plan_.job,
               std::to_string(plan_.keep_last),
               std::to_string(plan_.keep_every)};
  copy_error_.clear(), copy_step_.clear();
  copying_since_ = core::SystemClock().now();
  const auto said = [this](std::string_view line, bool error) {
    if (!error) copy_step_ = line;
    if (error) copy_error_ += (copy_error_.empty() ? "" : "; ") + std::string(line);
  };
  const auto ended = [this](int wait_status) { copied(wait_status); };
  auto started = launcher::PipedProcess::start(loop_, std::move(spec), {said, ended});
  if (started.ok())
    copy_ = *started;
  else
    say_(fmt::format("no copy in {}: {}", plan_.shared, started.status().message()));
}

void Checkpoints::copied(int wait_status) {
  copy_.reset();
  if (wait_status != 0 && copy_error_.empty()) copy_error_ = silent_end(wait_status);
  const double seconds = std::chrono::duration<double>(core::SystemClock().now() - copying_since_).count();
  if (wait_status != 0)
    say_(fmt::format("no copy in {}, the one before stays: {}", plan_.shared, copy_error_));
  else if (!copy_error_.empty())  // a damaged one was passed over
    say_(host_.empty() ? copy_error_ : fmt::format("host {}: {}", host_, copy_error_));
  if (wait_status == 0 && !copy_step_.empty())
    copy_bandwidth_ = static_cast<double>(arena_().spec().snapshot_bytes) / std::max(seconds, 1e-3);
  if (wait_status == 0 && !copy_step_.empty() && !quiet_)
    say_(
        fmt::format("checkpoint of step {}: copied to {} after {:.2f} s", copy_step_, plan_.shared, seconds));
  if (copy_again_ && !keep_) copy();
  poll();
}

}  // namespace regroup::cmd
