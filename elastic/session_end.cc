// How a member leaves the loop over the steps: what it does to its state after that, to export it say, goes
// neither into the comparison of docs/design/divergence.md nor into a checkpoint.
#include <fmt/format.h>

#include <utility>

#include "elastic/kept_state.h"
#include "elastic/session_impl.h"

namespace regroup::elastic {

using collective::Communicator;
using core::Status;

Status Session::Impl::keep_last_state(Step step) {
  if (kept_step_ == step) return {};
  check_.forget();
  if (world().size() > 1) REGROUP_RETURN_IF_ERROR(check_.prepare(*options_.state, step));
  // Where the step is applied its shares are in the save area; rank 0 alone makes up for a checkpoint.
  const bool needed = save_wanted(*self_, step, checkpointing_)
                          ? phase_ == Phase::kCommitted
                          : self_->rank() == 0 && save_is_due(*self_, step, begun_, checkpointing_);
  if (needed) {
    auto kept = KeptState::of(*options_.state);
    if (!kept.ok()) return kept.status();
    kept_ = std::move(*kept);
  }
  kept_step_ = step;
  return {};
}

State& Session::Impl::state_after(Step step) {
  return kept_ && kept_step_ == step ? *kept_ : *options_.state;
}

// The step that is committed stays as it is: the caller may still read its sum, or go on.
Status Session::Impl::leave_loop() {
  REGROUP_RETURN_IF_ERROR(broken_);
  if (phase_ == Phase::kComputing || learning_ || torn_ || !took_part() || last_step() == 0) return {};
  left_ = true;
  return keep_last_state(last_step());
}

void Session::Impl::come_back() {
  left_ = false;
  check_.forget();
  kept_.reset();
  kept_step_.reset();
}

Status Session::Impl::finish() {
  if (phase_ == Phase::kCommitted) REGROUP_RETURN_IF_ERROR(finish_apply());
  if (!took_part()) REGROUP_RETURN_IF_ERROR(drain());
  REGROUP_RETURN_IF_ERROR(run_region(
      [this](Communicator& all) {
        return save_what_is_due(*self_, state_after(applied_), applied_, begun_, checkpointing_, &saving_,
                                all, core::SystemClock().now() + options_.deadline,
                                /*as_left=*/kept_ && kept_step_ == applied_);
      },
      true));
  self_->line().finished.store(1, std::memory_order_release);
  self_->leave_all_generations();
  return {};
}

}  // namespace regroup::elastic
