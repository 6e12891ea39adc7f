// The implementation of Session: the transaction of docs/design/architecture.md section 3 and the
// regroup inside it (session.cc), how a process enters a World (session_join.cc) and leaves the
// training loop (session_end.cc).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "elastic/audit.h"
#include "elastic/checkpointing.h"
#include "elastic/data_plane.h"
#include "elastic/device_harvest.h"
#include "elastic/device_plane.h"
#include "elastic/device_staging.h"
#include "elastic/final_save.h"
#include "elastic/host_rails.h"
#include "elastic/leaves.h"
#include "elastic/ledger.h"
#include "elastic/options.h"
#include "elastic/participant.h"
#include "elastic/sampler.h"
#include "elastic/state_check.h"
#include "elastic/state_copy.h"
#include "elastic/timeline.h"
#include "regroup/session.h"

namespace regroup::elastic {

class Session::Impl {
 public:
  // `device`: null if gradients and sums are in memory of the host. `harvest`: null if there are no
  // kernels for them. `plane`: null if this member cannot use plane cuda. `replaceable`: the job
  // goes on without this member. `timeline`: may be null.
  Impl(Options options, std::unique_ptr<Participant> self, Checkpointing checkpointing,
       std::unique_ptr<DeviceStaging> device, std::unique_ptr<DeviceHarvest> harvest,
       std::unique_ptr<DevicePlane> plane, const Environment& env, bool replaceable,
       std::unique_ptr<Timeline> timeline);
  // Before finish(), a replaceable member leaves the job: the others do not wait for the end of its
  // process.
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // kInvalidArgument unless the calling thread is the one that joined: only that thread's death is
  // detected, so only it may store results.
  [[nodiscard]] base::Status check_thread(const char* call) const;
  [[nodiscard]] base::Status enter();
  [[nodiscard]] base::Result<std::optional<StepInfo>> next_step();
  [[nodiscard]] base::Result<std::optional<Shard>> next_shard();
  [[nodiscard]] base::Status fill_gradient(std::span<const GradientPart> parts);
  [[nodiscard]] base::Status change_stream(void* stream);
  [[nodiscard]] base::Status record_samples(std::span<const std::uint64_t> samples);
  [[nodiscard]] std::vector<Shard> planned_shards(proto::Step step) const;
  [[nodiscard]] base::Result<std::span<const std::byte>> commit();
  [[nodiscard]] base::Result<std::vector<SaveTarget>> save_targets();
  void saved(std::size_t target) {
    // A larger index belongs to an earlier step.
    if (target < saving_.parts.size()) saving_.parts[target].saved = true;
  }
  [[nodiscard]] SaveCounts save_counts() const { return saving_.counts; }
  [[nodiscard]] base::Status collective(
      const std::function<base::Status(collective::Communicator&)>& body);
  [[nodiscard]] base::Status leave_loop();
  [[nodiscard]] base::Status finish();
  void report_loss(double loss) { self_->own_slot().loss.store(loss, std::memory_order_relaxed); }

  [[nodiscard]] int begin_span(std::string_view name) {
    if (timeline_) timeline_->begin(name);
    return timeline_ ? timeline_->depth() : 0;
  }
  void end_span(int span) { end_spans(span - 1); }
  [[nodiscard]] Shard shard_of(proto::Step step, std::uint32_t leaf) const;  // no gradient
  [[nodiscard]] WorldInfo describe_world() const;
  [[nodiscard]] proto::Step last_step() const {
    return loop_state_ == LoopState::kCommitted ? applied_ + 1 : applied_;
  }
  [[nodiscard]] std::uint64_t seed() const { return self_->seed(); }

 private:
  using Step = proto::Step;
  [[nodiscard]] const proto::World& world() const { return self_->world(); }
  // Where the caller's loop is: between two steps, computing shards, or with the result of a
  // committed step that it is to apply. The state word of this member (proto::Phase) says what the
  // others may take as committed.
  enum class LoopState { kIdle, kComputing, kCommitted };

  [[nodiscard]] base::Result<Participant::Joined> regroup();
  // Opens the communicators of the World; members with the state copy it to those that need it.
  // kRevoked: regroup again.
  [[nodiscard]] base::Status enter_world();
  [[nodiscard]] base::Status resume_from_checkpoint();
  [[nodiscard]] base::Status open(proto::Position next);
  [[nodiscard]] StepInfo describe(Step step) const;
  [[nodiscard]] bool is_last(Step step) const;  // the last step of the last epoch
  [[nodiscard]] base::Status mark_applied();
  // True if the caller's state is the job's state after applied_.
  [[nodiscard]] bool has_state() const {
    return broken_.ok() && took_part() && !learning_ && !torn_ &&
           loop_state_ != LoopState::kCommitted;
  }
  // Call when `step`, the last one, is applied: computes the digest that finish() compares, and
  // copies the state if a checkpoint of it is due. A second call does nothing.
  [[nodiscard]] base::Status keep_last_state(Step step);
  [[nodiscard]] State& state_after(Step step);  // that copy, or the caller's state
  void resume_loop();                           // undoes leave_loop()
  // Copies the state into the save area if the agent requests it.
  [[nodiscard]] base::Status answer_agent(MemberActivity activity);
  // Stays at this step boundary, through any regroups, until the agent excludes this member: kLeft.
  [[nodiscard]] base::Status drain();
  // For a learner, before or after it is in a World. True: the result of the next step can be
  // applied; false: the learner has the state of its World.
  [[nodiscard]] base::Result<bool> catch_up();
  // Returns once a result, a state transfer, a World or a notice has come for this learner.
  [[nodiscard]] base::Status await_replay();
  [[nodiscard]] bool next_result_is_kept() const;  // by the agent, for a replay
  void refuse_result();                            // the kept one is damaged
  [[nodiscard]] base::Status load_transfer();
  [[nodiscard]] bool transfer_offered() const;
  [[nodiscard]] bool in_world() const { return self_->world().generation > 0; }
  // False for a joining member before its first step: it takes no part in sections after the step
  // whose state it copied.
  [[nodiscard]] bool took_part() const {
    return in_world() && self_->own_member().from_step <= applied_;
  }
  [[nodiscard]] base::Status section_alone(
      const std::function<base::Status(collective::Communicator&)>& body);

  // Spans of the timeline that last beyond a call.
  void begin_span(const char* name, std::uint64_t number, std::string_view args = {});
  void begin_step_span(const StepInfo& step);
  void end_spans(int depth = 0);
  [[nodiscard]] std::string missing_members() const;  // whose leaves are not sealed, as JSON
  [[nodiscard]] std::string described_world() const;  // this World, as JSON
  [[nodiscard]] std::string described_sum() const;    // that of a step, as JSON

  [[nodiscard]] std::optional<std::uint32_t> next_leaf() const;
  [[nodiscard]] Shard make_shard(std::uint32_t leaf);
  // What is audited in `step`, if its leaf has samples.
  [[nodiscard]] std::optional<AuditPlan> audit_in(Step step) const;
  // Gives the audit this member's bits of the leaf that is being filled, which are complete.
  [[nodiscard]] base::Status take_audited();
  // Compares what members computed of the audited leaf, if there is one. A member whose bits are
  // wrong withdraws its leaves and fails; where it cannot be known whose are, the job fails.
  [[nodiscard]] base::Status compare_audit();
  // Completes and seals the leaf that was handed out last, if there is one.
  [[nodiscard]] base::Status seal_filled();
  void seal();  // the buffer of the leaf, which is complete
  // The step after applied_ is committed: its sum is what commit() returns.
  [[nodiscard]] base::Status set_committed();
  [[nodiscard]] std::span<const std::byte> whole_sum() const;  // of that step, with the marks
  // If this member is rank 0 and has the state of `last`, writes the ledger up to that step.
  [[nodiscard]] base::Status write_ledger(Step last);
  void keep_ledger_line(Step step, std::span<const std::byte> sum);
  [[nodiscard]] std::size_t gradient_bytes() const {  // without the marks of a ledger
    return options_.elements * collective::size_of(options_.dtype);
  }
  void observe(StepEvent event) const {
    if (options_.observer) options_.observer(event, applied_ + 1);
  }
  [[nodiscard]] bool has_plane_of_gpus() const {
    return world().plane == proto::Plane::kCuda || world().plane == proto::Plane::kNccl;
  }
  // In plane nccl over several hosts only once they are connected.
  [[nodiscard]] bool sums_on_device() const {
    return has_plane_of_gpus() && (!data_plane_.spans_hosts() || rails_->connected());
  }
  // Waits for the sums of all leaves of this host, each where the World's plane takes it.
  [[nodiscard]] base::Result<std::vector<SealedSum>> await_sums(Step step);
  [[nodiscard]] bool lies_right(const SealedSum& sum) const;
  // Copies those sums of dead members to the arena for which this member is the one to do it. True
  // if there were any.
  [[nodiscard]] base::Result<bool> move_to_arena(const std::vector<SealedSum>& sums);
  [[nodiscard]] base::Status reduce(Step step, const std::vector<SealedSum>& sums,
                                    base::TimePoint deadline);
  // On the GPU, with a copy in the arena if learners wait for it.
  [[nodiscard]] base::Status reduce_on_device(Step step, const std::vector<SealedSum>& sums,
                                              base::TimePoint deadline);
  // kRevoked: regroup; then either more leaves must be computed, or the step was committed.
  [[nodiscard]] base::Status reduce_and_commit();
  using Body = std::function<base::Status(collective::Communicator&)>;
  [[nodiscard]] base::Status vote(base::TimePoint deadline);
  // Compares the states after applied_ of the members `ranks`, the ranks of `communicator`. If they
  // differ, the job and this call fail.
  [[nodiscard]] base::Status compare_states(collective::Communicator& communicator,
                                            const std::vector<int>& ranks,
                                            base::TimePoint deadline);
  [[nodiscard]] base::Status run_section(const Body& body, bool compare);
  [[nodiscard]] base::Status try_section(proto::Position at, const Body& body, bool compare);

  // The training thread, which holds the slot's robust futex.
  const std::thread::id owner_ = std::this_thread::get_id();
  const Options options_;
  const Checkpointing checkpointing_;
  const bool replaceable_;
  const std::unique_ptr<Timeline> timeline_;  // null: none
  SavePlan saving_;                           // of the step to be applied or the last one applied
  FinalSave final_save_;
  const std::unique_ptr<Participant> self_;
  std::optional<Sampler> sampler_;
  const std::unique_ptr<DeviceStaging> device_;
  const std::unique_ptr<DeviceHarvest> harvest_;
  const std::unique_ptr<DevicePlane> plane_;
  Leaves leaves_;
  std::span<std::byte> host_leaf_;  // in the arena, the gradient of the leaf that is being filled
  std::optional<Ledger> ledger_;
  DataPlane data_plane_;
  const std::unique_ptr<HostRails> rails_;  // null as plane_
  // For each leaf of the open step, the slot that holds or computes it. A dead member's slot if
  // that member had sealed the leaf.
  std::vector<proto::SlotId> owners_;
  StateCheck check_;
  const Step audit_every_;
  Audit audit_;
  LoopState loop_state_ = LoopState::kIdle;
  base::Status broken_;  // a collective section failed, or the members' states differ; sticky
  std::unique_ptr<StateCopy> last_state_;
  std::optional<Step> last_state_step_;  // argument of keep_last_state()
  bool loop_left_ = false;               // leave_loop() was called
  bool filling_ = false;                 // the caller fills a leaf
  bool filled_ = false;                  // fill_gradient() has
  bool auditing_ = false;                // the leaf is another member's, and is only compared
  bool filling_on_device_ = false;       // in a leaf buffer of plane_
  bool sum_on_device_ = false;           // the last sum of this member is that of device_
  std::uint32_t filling_leaf_ = 0;       // that leaf
  std::span<std::byte> marks_;           // of that leaf, for the ledger
  Step applied_ = 0;                     // last step applied to the caller's state
  Step begun_ = 0;                       // applied_ when this member entered its first World
  unsigned sections_ = 0;                // number of sections committed after applied_
  bool learning_ = false;
  bool torn_ = false;           // the state is a mixture of two states and must be copied again
  std::uint64_t transfer_ = 0;  // the slot's transfer word when it was last read
};

}  // namespace regroup::elastic
