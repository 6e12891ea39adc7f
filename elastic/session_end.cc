// How a member leaves the training loop. Later changes of its state (for an export, say) enter
// neither the comparison of docs/design/divergence.md nor a checkpoint.
#include <fmt/format.h>

#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/session_impl.h"
#include "elastic/state_copy.h"
#include "shmem/slot_owner.h"

namespace regroup::elastic {

using base::Status;
using collective::Communicator;

Session::Impl::~Impl() {
  shmem::MemberSlot& own = self_->own_slot();
  if (replaceable_ && own.finished.load(std::memory_order_acquire) == 0 &&
      own.leave_request.load(std::memory_order_acquire) != shmem::kNow)
    shmem::abandon(own);
}

Status Session::Impl::keep_last_state(Step step) {
  if (last_state_step_ == step) return {};
  check_.forget();
  if (world().size() > 1) REGROUP_RETURN_IF_ERROR(check_.prepare(*options_.state, step));
  // If the step is applied, all shares of its save are in the save area already; only rank 0
  // makes a checkpoint that is due.
  const bool needed = save_wanted(*self_, step, checkpointing_)
                          ? loop_state_ == LoopState::kCommitted
                          : self_->rank() == 0 && save_is_due(*self_, step, begun_, checkpointing_);
  if (needed) {
    REGROUP_ASSIGN_OR_RETURN(last_state_, StateCopy::of(*options_.state));
  }
  last_state_step_ = step;
  return {};
}

State& Session::Impl::state_after(Step step) {
  return last_state_ && last_state_step_ == step ? *last_state_ : *options_.state;
}

// The caller may still read the sum of a committed step, or continue to train.
Status Session::Impl::leave_loop() {
  REGROUP_RETURN_IF_ERROR(broken_);
  if (loop_state_ == LoopState::kComputing || learning_ || torn_ || !took_part() ||
      last_step() == 0)
    return {};
  loop_left_ = true;
  return keep_last_state(last_step());
}

void Session::Impl::resume_loop() {
  loop_left_ = false;
  check_.forget();
  last_state_.reset();
  last_state_step_.reset();
}

Status Session::Impl::finish() {
  if (loop_state_ == LoopState::kCommitted) REGROUP_RETURN_IF_ERROR(mark_applied());
  if (!took_part()) REGROUP_RETURN_IF_ERROR(drain());
  REGROUP_RETURN_IF_ERROR(run_section(
      [this](Communicator& all) {
        return save_what_is_due(*self_, state_after(applied_), applied_, begun_, checkpointing_,
                                &saving_, all, base::SystemClock().now() + options_.deadline,
                                /*as_left=*/last_state_ && last_state_step_ == applied_);
      },
      true));
  self_->own_slot().finished.store(1, std::memory_order_release);
  self_->leave_all_generations();
  if (timeline_) timeline_->flush();
  return {};
}

}  // namespace regroup::elastic
