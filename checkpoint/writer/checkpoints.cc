// When a save is written, and when the job may end. Each event (a save is complete, a process has
// ended, a deadline has passed) calls poll(), which does what is possible now:
// 1. A complete save is written, if none is being written, the directory is locked and no deadline
//    forbids it.
// 2. Once the job is over and nothing runs any more, the lock is released, and then finish()'s
//    callback is called.
#include "checkpoint/writer/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "checkpoint/writer/final_checkpoint.h"
#include "checkpoint/writer/persist_process.h"
#include "launcher/process/due.h"

namespace regroup::writer {
namespace {

using shmem::SaveMark;
using shmem::SaveRequest;

// How long regroup-persist may take to release the lock.
constexpr std::chrono::seconds kReleaseLimit(5);
constexpr std::chrono::seconds kSaveLimit(30);  // for a last save without a deadline
constexpr std::chrono::seconds kClaimLimit(1);  // for a waiting member to claim that save

}  // namespace

Checkpoints::Checkpoints(boost::asio::io_context& loop, CheckpointPlan plan, std::string host,
                         std::function<const shmem::Arena&()> arena, Say say, bool quiet)
    : plan_(std::move(plan)),
      host_(std::move(host)),
      arena_(std::move(arena)),
      say_(std::move(say)),
      quiet_(quiet),
      loop_(loop),
      last_(loop, arena_),
      directory_(loop, plan_, host_, persist_program(), {say_, [this] { poll(); }}),
      writer_(loop, persist_program(),
              {[this] { on_progress(); }, [this](const WriteEnd& end) { on_write_ended(end); }}),
      copy_(loop, plan_, persist_program(),
            {say_, [this] { on_progress(); }, [this](const CopyEnd& end) { on_copy_ended(end); }}),
      end_timer_(loop) {}

void Checkpoints::start() {
  if (host_.empty() && plan_.resume && !quiet_) say_(resumes(plan_));
  if (host_.empty() || plan_.directory.empty()) return;
  if (is_local())
    directory_.lock();
  else
    directory_.check();
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

SaveMark Checkpoints::mark() const {
  const shmem::Arena& arena = arena_();
  if (!arena.mapped() || arena.save_area().empty()) return {};
  return SaveMark::unpack(arena.save_word().load(std::memory_order_acquire));
}

// The end of each process calls poll() again.
void Checkpoints::poll() {
  const SaveMark now = mark();
  last_.set_hangs(excuses_members(directory_.stage()));
  const bool may_write = !writer_.writing() && !stopped_ && can_write(directory_.stage());
  if (may_write && now.phase == SaveMark::Phase::kReady) write(now.step);
  last_.on_rung();
  if (then_ && !end_waits()) end_of_job(now);
}

bool Checkpoints::end_waits() const {
  return writer_.writing() || copy_.copying() || holds_up_the_end(directory_.stage());
}

// `mark`: that of the last save. Its release of the lock is waited for, too.
void Checkpoints::end_of_job(const SaveMark& mark) {
  if (directory_.release()) {
    const base::TimePoint limit = base::SystemClock().now() + kReleaseLimit;
    return end_by(deadline_ ? std::min(*deadline_, limit) : limit);
  }
  if (was_late(directory_.stage())) {
    if (mark.phase == SaveMark::Phase::kReady)
      say_(fmt::format("the checkpoint of step {} is lost: {}", mark.step,
                       directory_.why_not_locked()));
    directory_.abandon();
  }
  if (const std::string outcome = last_.outcome(); !outcome.empty() && !quiet_) say_(outcome);
  std::exchange(then_, {})();
}

void Checkpoints::finish(std::function<void()> then) {
  then_ = std::move(then);
  directory_.on_end_of_job();
  if (!writer_.writing()) poll();
  if (end_waits() && directory_.stage() != DirectoryStage::kReleasing)
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
    writer_.kill();
    copy_.kill();
    directory_.abandon();
    poll();
  });
}

void Checkpoints::on_notice(base::TimePoint deadline) {
  if (plan_.every == 0 || (deadline_ && deadline >= *deadline_)) return;
  const bool further = std::exchange(deadline_, deadline).has_value();
  end_by(deadline);
  if (further) return;
  if (!writer_.writing() && !last_.can_request()) {
    if (!quiet_ && last_.newest() == 0) say_("no final checkpoint: no member has completed a step");
    return;
  }
  using What = FinalCheckpointDecision::What;
  const FinalCheckpointDecision choice = choose();
  if (!quiet_) say_(fmt::format("{}: {}", name_of(choice.what), choice.why));
  if (choice.what == What::kKeep) {
    stopped_ = true;
    cut_off_ = "too little time was left to write it";
    return writer_.kill();
  }
  if (!last_.can_request()) return;
  request(choice.what == What::kPersist ? SaveRequest::What::kAtBoundary
                                        : SaveRequest::What::kLater);
  const base::TimePoint now = base::SystemClock().now();
  last_.include_waiting_at(now + (deadline - now) / 2);
}

// Requests a save that can still be written before the deadline.
void Checkpoints::request(SaveRequest::What what) {
  last_.request(what, copied_by(base::SystemClock().now(), *deadline_,
                                arena_().spec().snapshot_bytes, writer_.bandwidth()));
}

// Requests the next save after an older one was written: members have continued meanwhile, and
// may be waiting for this request.
void Checkpoints::request_after_writing() {
  using What = SaveRequest::What;
  if (!last_.requested() || stopped_ || !last_.can_request()) return;
  if (!deadline_) return last_.request_again(What::kNow);
  const bool newer = last_.newest() > writer_.step();
  const FinalCheckpointDecision choice = choose();
  if (!quiet_ && newer) say_(fmt::format("{}: {}", name_of(choice.what), choice.why));
  if (choice.what == FinalCheckpointDecision::What::kPersist)
    return request(last_.includes_waiting() ? What::kNow : What::kAtBoundary);
  if (newer)
    last_.withdraw();
  else
    last_.request_again(What::kNone);
}

void Checkpoints::save_now(std::function<void()> then) {
  if (plan_.every == 0 || deadline_ || stopped_ || is_unusable(directory_.stage()) ||
      !last_.can_request())
    return then();
  if (!quiet_) say_("a final checkpoint is written before the end: the job has failed");
  last_.request(SaveRequest::What::kNow, base::SystemClock().now() + kSaveLimit);
  last_.await(kClaimLimit, std::move(then));
}

FinalCheckpointDecision Checkpoints::choose() const {
  const base::TimePoint now = base::SystemClock().now();
  Remaining remaining{.bytes = arena_().spec().snapshot_bytes,
                      .bandwidth = writer_.bandwidth(),
                      .time_left = *deadline_ - now,
                      .copied = is_local(),
                      .copy_bandwidth = copy_.bandwidth()};
  if (writer_.writing()) {
    remaining.writing = writer_.step();
    remaining.since = writer_.running_for(now);
  }
  if (copy_.copying()) remaining.copying = copy_.running_for(now);
  return decide_final_checkpoint(remaining);
}

base::Duration Checkpoints::still_needs() const {
  if ((!writer_.writing() && !copy_.copying()) || !deadline_) return base::Duration::zero();
  return std::max(base::Duration::zero(), *deadline_ - base::SystemClock().now());
}

std::string Checkpoints::unsaved() const {
  const proto::Step have = std::max(committed_, plan_.resume ? plan_.resume->step : 0);
  const proto::Step due = last_.due();
  if (plan_.every == 0 || due <= have) return "";
  const DirectoryStage stage = directory_.stage();
  const std::string why = was_late(stage) || is_unusable(stage) ? directory_.why_not_locked()
                          : failed_ > have                      ? failure_
                                                                : "the state was not saved";
  return fmt::format("the checkpoint of step {}, which was due at the end, is not in {}: {}", due,
                     plan_.directory, why);
}

}  // namespace regroup::writer
