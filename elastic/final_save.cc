// A request has a number, so that each member handles it once. The member that copies claims it
// first; if that member dies before the save is complete, the agent sees the claim and makes a
// new request.
#include "elastic/final_save.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "shmem/arena.h"
#include "shmem/save_mark.h"

namespace regroup::elastic {
namespace {

using base::Status;
using shmem::SaveMark;
using shmem::SaveProgress;
using shmem::SaveRequest;
using What = shmem::SaveRequest::What;

constexpr std::chrono::seconds kDiskLimit(30);  // wait of finish() for a disk without progress

bool saves(Participant& self, const Checkpointing& options) {
  return options.every > 0 && !self.arena().save_area().empty();
}

SaveRequest request_to(Participant& self) {
  return SaveRequest::unpack(
      shmem::save_header(self.arena().save_area()).asked.load(std::memory_order_acquire));
}

SaveMark mark_of(Participant& self) {
  return SaveMark::unpack(self.arena().save_word().load(std::memory_order_acquire));
}

// True if the members copy shares of this very step anyway.
bool shares_come(Participant& self, const SaveMark& mark, proto::Step applied) {
  const auto progress =
      shmem::save_header(self.arena().save_area()).progress.load(std::memory_order_acquire);
  return mark == SaveMark{SaveMark::Phase::kWanted, applied} &&
         SaveProgress::unpack(progress).generation == self.world().generation;
}

bool is_alone(Participant& self) {
  const shmem::Arena& arena = self.arena();
  for (proto::SlotIndex slot = 0; slot < arena.spec().slots; ++slot) {
    if (slot != self.slot_id().slot && arena.member_slot(slot).has_living_member()) return false;
  }
  return true;
}

// True if no member can store a share of a requested save while this member copies the state
// after `applied`, unless with equal bytes (the same step). A member that has applied a later step
// stored its share before; and while the generation lasts, no later step commits without this
// member's vote.
bool may_take_over(Participant& self, const SaveMark& mark, proto::Step applied) {
  if (mark.phase != SaveMark::Phase::kWanted || mark.step <= applied) return true;
  const bool holds_vote = self.world().generation == self.arena().newest_world() && !self.revoked();
  return holds_vote || is_alone(self);
}

// True if the save of `mark` has the state after `applied`.
bool covers(const SaveMark& mark, proto::Step applied) {
  return mark.phase != SaveMark::Phase::kWanted && mark.step >= applied;
}

}  // namespace

bool save_is_due(Participant& self, proto::Step applied, proto::Step begun,
                 const Checkpointing& options) {
  if (!saves(self, options) || applied <= begun) return false;
  const SaveMark mark = mark_of(self);
  if (!covers(mark, applied)) return true;
  const shmem::SaveHeader& header = shmem::save_header(self.arena().save_area());
  return !mark.on_its_way() && mark.step > 0 &&
         header.failed.load(std::memory_order_acquire) == mark.step;
}

bool FinalSave::wanted(Participant& self, proto::Step applied, const Checkpointing& options,
                       MemberActivity activity) const {
  if (applied == 0 || !saves(self, options)) return false;
  const SaveRequest request = request_to(self);
  return request.open() && request.number != answered_ &&
         (activity == MemberActivity::kAtBoundary || request.what == What::kNow);
}

Status FinalSave::answer(Participant& self, State& state, proto::Step applied,
                         const Checkpointing& options, SavePlan* plan, MemberActivity activity) {
  bool again = true;
  while (again && wanted(self, applied, options, activity)) {
    again = false;
    REGROUP_RETURN_IF_ERROR(answer_once(self, state, applied, options, plan, &again));
  }
  return {};
}

Status FinalSave::answer_once(Participant& self, State& state, proto::Step applied,
                              const Checkpointing& options, SavePlan* plan, bool* again) {
  shmem::SaveHeader& header = shmem::save_header(self.arena().save_area());
  std::uint32_t asked = header.asked.load(std::memory_order_acquire);
  const SaveRequest request = SaveRequest::unpack(asked);
  const std::uint64_t seen = self.arena().save_word().load(std::memory_order_acquire);
  const SaveMark mark = SaveMark::unpack(seen);
  answered_ = request.number;
  if (!request.open()) return {};
  if (mark.phase != SaveMark::Phase::kWanted && mark.step >= applied) return {};
  if (request.what == What::kLater || mark.on_its_way()) {
    const auto changed = [&] {
      const bool freed = request.what != What::kLater && !mark_of(self).on_its_way();
      return freed || header.asked.load(std::memory_order_acquire) != asked;
    };
    const base::TimePoint until{
        std::chrono::nanoseconds(header.until.load(std::memory_order_acquire))};
    *again = self.pause(changed, until);
    if (*again) answered_ = ~0U;
    return {};
  }
  // If states must be compared before a save counts: no further step will compare these states.
  const bool shared =
      request.what == What::kAtBoundary && !options.compared && request.number != crossed_;
  if (shared && shares_come(self, mark, applied)) return {};
  if (!may_take_over(self, mark, applied)) return {};
  const SaveRequest claim{What::kClaimed, request.number, self.slot_id().slot};
  if (!header.asked.compare_exchange_strong(asked, claim.pack(), std::memory_order_acq_rel)) {
    *again = true;
    answered_ = ~0U;
    return {};
  }
  REGROUP_RETURN_IF_ERROR(save_alone(self, state, applied, options, plan, seen));
  // Another save was requested or completed meanwhile: reopen the request.
  if (const SaveMark now = mark_of(self);
      now.phase == SaveMark::Phase::kWanted || now.step < applied) {
    std::uint32_t claimed = claim.pack();
    *again = header.asked.compare_exchange_strong(claimed, asked, std::memory_order_acq_rel);
    if (*again) answered_ = ~0U, crossed_ = request.number;
  }
  return {};
}

// The agent repeats its request if a copy is incomplete, or if a step was applied after it: a
// member that exited earlier would take that step with it.
Status FinalSave::settle(Participant& self, State& state, proto::Step applied,
                         const Checkpointing& options, SavePlan* plan) {
  if (applied == 0 || !saves(self, options)) return {};
  const shmem::SaveHeader& header = shmem::save_header(self.arena().save_area());
  const auto settled = [&] {
    const SaveMark mark = mark_of(self);
    return (mark.phase != SaveMark::Phase::kWanted && mark.step >= applied) ||
           request_to(self).what == What::kNone;
  };
  const auto changed = [&] {
    return settled() || wanted(self, applied, options, MemberActivity::kAtBoundary);
  };
  for (;;) {
    REGROUP_RETURN_IF_ERROR(
        answer(self, state, applied, options, plan, MemberActivity::kAtBoundary));
    const base::TimePoint until{
        std::chrono::nanoseconds(header.until.load(std::memory_order_acquire))};
    if (settled() || !self.pause(changed, until)) return {};
  }
}

bool DiskTimeout::over(base::TimePoint now, std::uint64_t moved) {
  if (!since_ || std::exchange(moved_, moved) != moved) since_ = now;
  return now - *since_ >= limit_;
}

Status save_what_is_due(Participant& self, State& state, proto::Step applied, proto::Step begun,
                        const Checkpointing& options, SavePlan* plan, collective::Communicator& all,
                        base::TimePoint deadline, bool as_left) {
  if (options.every == 0 || applied <= begun) return {};
  // All have copied their shares of a requested save.
  REGROUP_RETURN_IF_ERROR(all.barrier(deadline));
  if (all.rank() != 0 || !saves(self, options)) return {};
  shmem::SaveHeader& header = shmem::save_header(self.arena().save_area());
  header.due.store(applied, std::memory_order_release);
  if (!save_is_due(self, applied, begun, options)) return {};
  const base::SystemClock clock;
  DiskTimeout timeout(kDiskLimit);
  // The others wait for this member's vote only until their deadline.
  const base::TimePoint latest =
      deadline - std::min<base::Duration>(kDiskLimit, (deadline - clock.now()) / 4);
  const auto is_free = [&] {
    return !mark_of(self).on_its_way() || header.hangs.load(std::memory_order_acquire) != 0 ||
           timeout.over(clock.now(), header.moved.load(std::memory_order_acquire)) ||
           clock.now() >= latest;
  };
  REGROUP_RETURN_IF_ERROR(self.wait(
      is_free,
      fmt::format(
          "finish: waiting for the checkpoint of step {} to be written before the final one",
          mark_of(self).step)));
  const std::uint64_t seen = self.arena().save_word().load(std::memory_order_acquire);
  if (SaveMark::unpack(seen).on_its_way()) return {};  // the agent reports the fate of that save
  const bool again = save_is_due(self, applied, begun, options);
  const bool failed = covers(SaveMark::unpack(seen), applied);
  return again && (as_left || !failed) ? save_alone(self, state, applied, options, plan, seen)
                                       : Status();
}

}  // namespace regroup::elastic
