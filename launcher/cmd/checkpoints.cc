// One regroup-persist for each checkpoint: an error, a crash or a slow disk costs that one and holds up
// nobody.
#include "launcher/cmd/checkpoints.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/cmd/last_checkpoint.h"
#include "launcher/supervise/app.h"
#include "launcher/supervise/environment.h"
#include "launcher/supervise/spawn.h"

namespace regroup::cmd {
namespace {

using core::Result;
using core::SaveMark;
using core::Status;
using Json = nlohmann::json;

constexpr std::chrono::seconds kFinishLimit(600);  // of a checkpoint that is being written when the job ends
constexpr double kMiB = 1 << 20;

const char* name_of(LastChoice::What what) {
  switch (what) {
    case LastChoice::What::kFinish:
      return "the checkpoint is finished before the end";
    case LastChoice::What::kPersist:
      return "a last checkpoint is made before the end";
    case LastChoice::What::kKeep:
      return "the last checkpoint that is committed stays the last";
  }
  return "?";
}

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
      limit_(loop) {}

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
    check_local();
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
void Checkpoints::check_directory() { check({"regroup-persist", "owner", plan_.directory, plan_.job}, {}); }

// On this host's own disk. Should another host see the same directory, that one has it for this job, too.
void Checkpoints::check_local() {
  auto taken = take_directory(plan_.directory, plan_.job);
  if (taken.ok()) local_.emplace(std::move(*taken));
  const core::Step after = plan_.resume ? plan_.resume->step : 0;
  std::vector<std::string> argv{"regroup-persist", "local",   plan_.directory,
                                plan_.shared,      plan_.job, std::to_string(after)};
  if (local_) argv.emplace_back("held");
  check(std::move(argv), [this] { barred_ = true; });
}

// Errors mean that nothing is written here; what else it says is for the user.
void Checkpoints::check(std::vector<std::string> argv, std::function<void()> failed) {
  launcher::SpawnSpec spec;
  spec.path = launcher::find_helper("regroup-persist");
  spec.argv = std::move(argv);
  const auto said = [this](std::string_view line, bool error) {
    say_(error ? fmt::format("host {}: no checkpoints are made here, and none is read: {}", host_, line)
               : fmt::format("host {}: {}", host_, line));
  };
  const auto ended = [this, failed](int status) {
    check_.reset();
    if (status != 0 && failed) failed();
    poll();
  };
  auto started = launcher::PipedProcess::start(loop_, std::move(spec), {said, ended});
  if (started.ok())
    check_ = *started;
  else {
    said(started.status().message(), true);
    if (failed) failed();
  }
}

void Checkpoints::poll() {
  const core::Arena& arena = arena_();
  const bool there = arena.mapped() && !arena.save_area().empty();
  const auto mark = there ? SaveMark::unpack(arena.save_word().load(std::memory_order_acquire)) : SaveMark{};
  const bool preparing = check_ && local_;  // what is newer in this host's own directory goes first
  if (!process_ && !preparing && !keep_ && !barred_ && mark.phase == SaveMark::Phase::kReady)
    write(mark.step);
  if (process_ || copy_ || preparing) return;  // their ends go on
  if (then_) std::exchange(then_, {})();
}

void Checkpoints::finish(std::function<void()> then) {
  then_ = std::move(then);
  if (!process_) poll();
  if (process_ || copy_ || (check_ && local_))
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
    if (check_) check_->kill();
  });
}

void Checkpoints::on_notice(core::TimePoint deadline) {
  const core::Arena& arena = arena_();
  if (deadline_ || plan_.every == 0 || !arena.mapped() || arena.save_area().empty()) return;
  deadline_ = deadline;
  end_by(deadline);
  const core::TimePoint now = core::SystemClock().now();
  Remaining remaining{{}, {}, arena.spec().snapshot_bytes, bandwidth_, deadline - now};
  if (process_) remaining.writing = writing_, remaining.since = now - since_;
  const LastChoice choice = choose_last(remaining);
  keep_ = choice.what == LastChoice::What::kKeep;
  if (choice.what == LastChoice::What::kPersist)
    core::save_header(arena.save_area()).asked.store(1, std::memory_order_release);
  if (!quiet_) say_(fmt::format("{}: {}", name_of(choice.what), choice.why));
  if (keep_ && process_) process_->kill();
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

core::Step Checkpoints::newest_step() const {
  core::Step newest = 0;
  for (core::SlotIndex slot = 0; slot < arena_().spec().slots; ++slot)
    newest = std::max(newest, arena_().line(slot).step.load(std::memory_order_relaxed));
  return newest;
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
  if (const core::Step newest = newest_step(); newest >= writing_ + plan_.every && !quiet_)
    say_(fmt::format("the checkpoint due after step {} waited for the disk: step {} is done (--every {})",
                     (writing_ / plan_.every + 1) * plan_.every, newest, plan_.every));
  free_area(writing_);
  if (acknowledged_) copy();
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
  auto started = launcher::PipedProcess::start(
      loop_, std::move(spec),
      {[this](std::string_view line, bool error) { (error ? copy_error_ : copy_step_) = line; },
       [this](int wait_status) { copied(wait_status); }});
  if (started.ok())
    copy_ = *started;
  else
    say_(fmt::format("no copy in {}: {}", plan_.shared, started.status().message()));
}

void Checkpoints::copied(int wait_status) {
  copy_.reset();
  if (wait_status != 0 && copy_error_.empty()) copy_error_ = silent_end(wait_status);
  const double seconds = std::chrono::duration<double>(core::SystemClock().now() - copying_since_).count();
  if (!copy_error_.empty())
    say_(fmt::format("no copy in {}, the one before stays: {}", plan_.shared, copy_error_));
  else if (!copy_step_.empty() && !quiet_)
    say_(
        fmt::format("checkpoint of step {}: copied to {} after {:.2f} s", copy_step_, plan_.shared, seconds));
  if (copy_again_ && !keep_) copy();
  poll();
}

}  // namespace regroup::cmd
