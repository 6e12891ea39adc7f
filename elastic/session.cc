// The transaction of docs/design/architecture.md section 3: compute, reduce, vote, commit, apply;
// and the regroup inside it.
#include "regroup/session.h"
#include "base/clock.h"
#include "base/status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>
#include <set>

#include "elastic/ledger_marks.h"
#include "elastic/session_impl.h"
#include "elastic/state_donation.h"
#include "proto/transfer_step.h"
#include "shmem/arena.h"

namespace regroup::elastic {

using base::Code;
using base::Result;
using base::Status;
using collective::Communicator;
using proto::Position;

const char* name_of(StepEvent event) {
  switch (event) {
    case StepEvent::kRevoked:
      return "revoked";
    case StepEvent::kJoined:
      return "joined";
    case StepEvent::kSealed:
      return "sealed";
    case StepEvent::kGathered:
      return "gathered";
    case StepEvent::kReduced:
      return "reduced";
    case StepEvent::kCommitted:
      return "committed";
  }
  return "?";
}

namespace {

// A line on standard error, if there is something to tell.
void tell(const std::string& sentence) {
  if (!sentence.empty()) fmt::print(stderr, "regroup: {}\n", sentence);
}

// Copies between the device and the arena then need no detour.
void pin_for(DeviceStaging& device, const shmem::Arena& arena, proto::SlotIndex slot) {
  const auto pin = [&](std::span<std::byte> first, std::span<std::byte> last) {
    device.pin({first.data(), last.data() + last.size()});
  };
  pin(arena.buffer(slot, 0), arena.buffer(slot, arena.spec().buffers_per_slot - 1));
  const auto even = arena.result(0);
  const auto odd = arena.result(1);
  even.data() < odd.data() ? pin(even, odd) : pin(odd, even);
}

}  // namespace

Session::Impl::Impl(Options options, std::unique_ptr<Participant> self, Checkpointing checkpointing,
                    std::unique_ptr<DeviceStaging> device, std::unique_ptr<DeviceHarvest> harvest,
                    std::unique_ptr<DevicePlane> plane, const Environment& env, bool replaceable,
                    std::unique_ptr<Timeline> timeline)
    : options_(std::move(options)),
      checkpointing_(std::move(checkpointing)),
      replaceable_(replaceable),
      timeline_(std::move(timeline)),
      self_(std::move(self)),
      device_(std::move(device)),
      harvest_(std::move(harvest)),
      plane_(std::move(plane)),
      leaves_(&self_->arena(), self_->slot_id().slot, options_.dtype, plane_.get()),
      data_plane_(*self_),
      rails_(plane_ ? std::make_unique<HostRails>(device_->stream(), *self_, data_plane_, *plane_,
                                                  std::chrono::seconds(env.nccl_timeout))
                    : nullptr),
      check_(checkpointing_.compared),
      audit_every_(env.audit_every) {
  if (device_) pin_for(*device_, self_->arena(), self_->slot_id().slot);
  if (options_.samples > 0)
    sampler_.emplace(self_->seed(), SamplerOptions{.samples = options_.samples,
                                                   .batch = options_.batch,
                                                   .shards = self_->shards(),
                                                   .substeps = options_.substeps,
                                                   .shuffle = options_.shuffle,
                                                   .drop_last = options_.drop_last});
  if (!env.ledger.empty())
    ledger_.emplace(env.ledger,
                    LedgerHeader{.job = checkpointing_.job,
                                 .seed = self_->seed(),
                                 .samples = options_.samples,
                                 .batch = options_.batch,
                                 .epochs = options_.epochs,
                                 .shards = self_->shards(),
                                 .substeps = options_.substeps,
                                 .shuffle = options_.shuffle,
                                 .drop_last = options_.drop_last,
                                 .own_order = options_.own_order},
                    [this] { return self_->revoked(); });
  self_->while_waiting(
      [this] {
        return has_state() &&
               final_save_.wanted(*self_, applied_, checkpointing_, MemberActivity::kWaiting);
      },
      [this] { (void)answer_agent(MemberActivity::kWaiting).ok(); });
}

Status Session::Impl::check_thread(const char* call) const {
  if (owner_ == std::this_thread::get_id()) return {};
  return base::invalid_argument(
      fmt::format("{}: called on a thread other than the one that called join()", call));
}

void Session::Impl::begin_span(const char* name, std::uint64_t number, std::string_view args) {
  if (timeline_) timeline_->begin(fmt::format("{} {}", name, number), args);
}

void Session::Impl::begin_step_span(const StepInfo& step) {
  if (timeline_)
    begin_span("step", step.step,
               fmt::format(R"("epoch":{},"samples":{},"generation":{})", step.epoch, step.samples,
                           world().generation));
}

void Session::Impl::end_spans(int depth) {
  if (timeline_) timeline_->end_to(depth);
}

// Of this host: the arena has no seals of others.
std::string Session::Impl::missing_members() const {
  const shmem::Arena& arena = self_->arena();
  const auto sealed = [&](std::uint32_t leaf) {
    for (std::uint32_t b = 0; b < arena.spec().buffers_per_slot; ++b) {
      const auto seal = proto::Seal::unpack(
          arena.member_slot(owners_[leaf].slot).seals[b].load(std::memory_order_relaxed));
      if (seal.step == ((applied_ + 1) & proto::kMaxStep) && seal.leaves.begin <= leaf &&
          leaf < seal.leaves.end)
        return true;
    }
    return false;
  };
  std::set<proto::MemberId> missing;
  for (std::uint32_t leaf = 0; leaf < owners_.size(); ++leaf) {
    if (owners_[leaf].node != arena.spec().node || sealed(leaf)) continue;
    if (const int rank = world().rank_of(owners_[leaf]); rank >= 0)
      missing.insert(world().members[static_cast<std::size_t>(rank)].id);
  }
  return fmt::format("\"of\":[{}]", fmt::join(missing, ","));
}

std::string Session::Impl::described_world() const {
  return fmt::format(R"("generation":{},"members":{},"why":{})", world().generation, world().size(),
                     json_string(world().why));
}

std::string Session::Impl::described_sum() const {
  return fmt::format(R"("bytes":{})", gradient_bytes());
}

Result<Participant::Joined> Session::Impl::regroup() {
  observe(StepEvent::kRevoked);
  TimelineSpan span(timeline_.get(), "regroup");
  for (;;) {
    auto joined = self_->regroup();
    if (!joined.ok() || *joined == Participant::Joined::kOpenIsCommitted) return joined;
    Status settled = enter_world();
    if (settled.ok()) observe(StepEvent::kJoined);
    if (settled.ok() && timeline_) span.set_args(described_world());
    if (settled.ok()) return Participant::Joined::kInWorld;
    if (settled.code() != Code::kRevoked) return settled;
  }
}

Status Session::Impl::open(Position next) {
  for (;;) {
    Status status = self_->open(next);
    if (status.code() != Code::kRevoked) return status;
    REGROUP_RETURN_IF_ERROR(regroup().status());
  }
}

StepInfo Session::Impl::describe(Step step) const {
  if (!sampler_) return {step, 0, options_.batch, step == 1};
  const Batch batch = sampler_->batch_of(step);
  const auto substep = static_cast<std::uint32_t>((step - 1) % options_.substeps);
  return {step, batch.epoch, batch.end - batch.begin, batch.begin == 0 && substep == 0, substep};
}

bool Session::Impl::is_last(Step step) const {
  return sampler_ && options_.epochs > 0 && describe(step + 1).epoch >= options_.epochs;
}

Status Session::Impl::mark_applied() {
  end_spans();
  shmem::MemberSlot& own = self_->own_slot();
  applied_ += 1;
  if (learning_) {
    const auto mark = proto::TransferStep::unpack(transfer_);
    own.replayed.store(proto::TransferStep{mark.transfer, applied_}.pack(),
                       std::memory_order_release);
  }
  sections_ = 0;
  loop_state_ = LoopState::kIdle;
  own.step.store(applied_, std::memory_order_relaxed);
  own.applied_at.store(
      static_cast<std::uint64_t>(base::SystemClock().now().time_since_epoch().count()),
      std::memory_order_relaxed);
  return learning_ ? Status()
                   : save_share(*self_, state_after(applied_), applied_, checkpointing_, &saving_);
}

Status Session::Impl::answer_agent(MemberActivity activity) {
  if (!has_state()) return {};
  return final_save_.answer(*self_, state_after(applied_), applied_, checkpointing_, &saving_,
                            activity);
}

// The agent may request the state at any time, even after all members were excluded, since a signal
// may reach the members before the launcher.
Status Session::Impl::drain() {
  TimelineSpan span(timeline_.get(), "leave");
  self_->set_leaving(true);
  REGROUP_RETURN_IF_ERROR(answer_agent(MemberActivity::kAtBoundary));
  REGROUP_RETURN_IF_ERROR(self_->announce_drained());
  const auto asked = [this] {
    return has_state() &&
           final_save_.wanted(*self_, applied_, checkpointing_, MemberActivity::kAtBoundary);
  };
  for (;;) {
    Status status = self_->wait(asked, "leave: the agent did not release this member");
    if (status.code() == Code::kRevoked) status = regroup().status();
    if (status.ok()) REGROUP_RETURN_IF_ERROR(answer_agent(MemberActivity::kAtBoundary));
    if (status.code() == Code::kLeft && has_state())
      REGROUP_RETURN_IF_ERROR(
          final_save_.settle(*self_, state_after(applied_), applied_, checkpointing_, &saving_));
    if (!status.ok()) return status;
    if (took_part() &&
        !self_->asked_to_leave()) {  // the other members have finished, and this one has the state
      self_->set_leaving(false);
      return {};
    }
  }
}

Result<std::optional<StepInfo>> Session::Impl::next_step() {
  REGROUP_RETURN_IF_ERROR(broken_);
  if (loop_state_ == LoopState::kComputing)
    return base::invalid_argument("next_step() called before the previous step was committed");
  if (loop_left_) resume_loop();
  if (loop_state_ == LoopState::kCommitted) REGROUP_RETURN_IF_ERROR(mark_applied());
  if (self_->asked_to_leave()) REGROUP_RETURN_IF_ERROR(drain());
  if (is_last(applied_)) {
    if (!took_part()) REGROUP_RETURN_IF_ERROR(drain());  // this member joined after the last step
    REGROUP_RETURN_IF_ERROR(keep_last_state(applied_));
    return std::optional<StepInfo>();
  }
  if (auto caught_up = catch_up(); !caught_up.ok()) {
    return caught_up.status();
  } else if (*caught_up) {
    REGROUP_RETURN_IF_ERROR(set_committed());
    return std::optional(describe(applied_ + 1));
  }
  REGROUP_RETURN_IF_ERROR(donate_to_transfer(*self_, *options_.state, applied_));
  request_save(*self_, applied_, checkpointing_, is_last(applied_ + 1));
  REGROUP_RETURN_IF_ERROR(open(Position::of(applied_ + 1)));
  leaves_.begin(applied_ + 1);
  if (plane_) REGROUP_RETURN_IF_ERROR(leaves_.place(sums_on_device()));
  owners_ = proto::owners_of(world(), applied_ + 1);
  audit_.begin(audit_in(applied_ + 1), applied_ + 1, self_->rank());
  loop_state_ = LoopState::kComputing;
  const StepInfo step = describe(applied_ + 1);
  begin_step_span(step);
  return std::optional(step);
}

std::optional<std::uint32_t> Session::Impl::next_leaf() const {
  for (std::uint32_t leaf = 0; leaf < owners_.size(); ++leaf) {
    if (owners_[leaf] == self_->slot_id() && !leaves_.holds(leaf)) return leaf;
  }
  return std::nullopt;
}

std::optional<AuditPlan> Session::Impl::audit_in(Step step) const {
  const auto plan = plan_audit(world(), step, audit_every_, seed());
  if (plan && sampler_ && shard_of(step, plan->leaf).samples.empty()) return std::nullopt;
  return plan;
}

Shard Session::Impl::make_shard(std::uint32_t leaf) {
  Shard shard = shard_of(applied_ + 1, leaf);
  const std::span<std::byte> buffer = leaves_.acquire(leaf);
  filling_on_device_ = sums_on_device();
  host_leaf_ = buffer.first(gradient_bytes());
  marks_ = buffer.subspan(gradient_bytes());
  shard.gradient = device_ && !filling_on_device_ ? device_->leaf() : host_leaf_;
  filling_leaf_ = leaf;
  filling_ = true;
  filled_ = false;
  auditing_ = audit_.leaf_to_compute() == leaf;
  begin_span(auditing_ ? "audit of shard" : "shard", leaf);
  if (ledger_) (void)record_samples(shard.samples).ok();
  return shard;
}

Status Session::Impl::record_samples(std::span<const std::uint64_t> samples) {
  if (!filling_ || filled_)  // fill_gradient() has added the marks to those of other leaves
    return base::invalid_argument("record_samples() called while no shard is being computed");
  if (ledger_)
    write_marks(marks_, options_.dtype, applied_ + 1, filling_leaf_,
                {.samples = samples.size(), .crc = samples_crc(samples)});
  return {};
}

Status Session::Impl::set_committed() {
  loop_state_ = LoopState::kCommitted;
  if (timeline_ && timeline_->depth() == 0) begin_step_span(describe(applied_ + 1));  // a learner
  if (timeline_) timeline_->begin("apply");
  if (!ledger_) return {};
  keep_ledger_line(applied_ + 1, whole_sum());
  const Status written = write_ledger(applied_ + 1);
  // The next World writes the line if this one is over.
  return written.code() == Code::kRevoked ? Status() : written;
}

void Session::Impl::keep_ledger_line(Step step, std::span<const std::byte> sum) {
  StepMarks marks = read_marks(sum.subspan(gradient_bytes()), options_.dtype, self_->shards());
  if (marks.step != step) return;
  const StepInfo info = describe(step);
  ledger_->keep({step, info.epoch, info.substep, info.samples, std::move(marks.leaves)});
}

// A member that joined after `last` does not know its line, but the arena may still hold the sum.
Status Session::Impl::write_ledger(Step last) {
  if (!ledger_) return {};
  if (!in_world() || self_->rank() != 0 || learning_ || torn_) {
    ledger_->close();
    return {};
  }
  if (last > 0 && !ledger_->keeps(last)) keep_ledger_line(last, self_->arena().result(last));
  return ledger_->write_through(last);
}

Shard Session::Impl::shard_of(Step step, std::uint32_t leaf) const {
  Shard shard;
  shard.leaf = leaf;
  if (sampler_) shard.samples = sampler_->samples_of(step, leaf);
  shard.seed = mix(seed(), sampler_ ? sampler_->batch_number(step) : step, leaf);
  return shard;
}

std::vector<Shard> Session::Impl::planned_shards(Step step) const {
  if (!sampler_ || learning_ || step <= last_step() || step <= world().resume.step()) return {};
  if (options_.epochs > 0 && describe(step).epoch >= options_.epochs) return {};
  const bool open = loop_state_ == LoopState::kComputing && step == applied_ + 1;
  const auto owners = open ? owners_ : proto::owners_of(world(), step);
  std::vector<Shard> out;
  if (open) {
    if (const auto leaf = audit_.leaf_to_compute()) out.push_back(shard_of(step, *leaf));
  } else if (const auto audit = audit_in(step); audit && audit->second == self_->rank()) {
    out.push_back(shard_of(step, audit->leaf));
  }
  for (std::uint32_t leaf = 0; leaf < owners.size(); ++leaf) {
    if (owners[leaf] != self_->slot_id() || (open && leaves_.holds(leaf))) continue;
    Shard shard = shard_of(step, leaf);
    if (!shard.samples.empty()) out.push_back(std::move(shard));
  }
  return out;
}

Status Session::Impl::fill_gradient(std::span<const GradientPart> parts) {
  if (!filling_ || filled_)
    return base::invalid_argument("fill_gradient() called without a shard that is to be filled");
  std::uint64_t end = 0;
  for (const GradientPart& part : parts) {
    if (part.begin < end || part.begin > options_.elements ||
        part.count > options_.elements - part.begin)
      return base::invalid_argument(
          fmt::format("fill_gradient: expected ascending parts of {} elements, got {} from {} on "
                      "after {}",
                      options_.elements, part.count, part.begin, end));
    end = part.begin + part.count;
  }
  if (device_) {
    if (!harvest_) return base::unavailable("fill_gradient: there are no kernels for the device");
    REGROUP_RETURN_IF_ERROR(
        harvest_->fill(filling_on_device_ ? host_leaf_ : device_->leaf(), parts));
  } else if (ledger_) {
    const std::vector<std::byte> marks(marks_.begin(), marks_.end());
    std::vector<GradientPart> all(parts.begin(), parts.end());
    all.push_back({options_.elements, mark_elements(self_->shards()), marks.data(), 1});
    leaves_.fill(all, audit_.compares(filling_leaf_));
  } else {
    leaves_.fill(parts, audit_.compares(filling_leaf_));
  }
  filled_ = true;
  return {};
}

Status Session::Impl::change_stream(void* stream) {
  if (device_) return device_->change_stream(stream);
  return base::invalid_argument("change_stream: gradients are in memory of the host");
}

Status Session::Impl::seal_filled() {
  if (!filling_) return {};
  if (device_ && !filling_on_device_) REGROUP_RETURN_IF_ERROR(device_->copy_leaf_to(host_leaf_));
  if (audit_.compares(filling_leaf_)) REGROUP_RETURN_IF_ERROR(take_audited());
  if (auditing_) {
    auditing_ = filling_ = false;
    end_spans(1);
    leaves_.discard();
    return {};
  }
  seal();
  return leaves_.status();
}

Status Session::Impl::take_audited() {
  const auto buffer = self_->arena().buffer(self_->slot_id().slot, leaves_.buffer());
  if (filling_on_device_)
    REGROUP_RETURN_IF_ERROR(plane_->copy_to_arena(self_->slot_id().slot, leaves_.buffer()));
  audit_.take(buffer);
  return {};
}

void Session::Impl::seal() {
  filling_ = false;
  end_spans(1);  // that of the shard
  leaves_.seal();
  observe(StepEvent::kSealed);
  shmem::ring_all(self_->arena(), self_->slot_id().slot);
}

Result<std::optional<Shard>> Session::Impl::next_shard() {
  REGROUP_RETURN_IF_ERROR(broken_);
  if (loop_state_ == LoopState::kIdle)
    return base::invalid_argument("next_shard() called without an open step");
  if (loop_state_ == LoopState::kCommitted) return std::optional<Shard>();
  REGROUP_RETURN_IF_ERROR(seal_filled());
  for (;;) {
    Status status = self_->revoked() ? base::revoked("revoked") : Status();
    while (status.ok()) {
      const auto audited = audit_.leaf_to_compute();
      const auto leaf = audited ? audited : next_leaf();
      if (!leaf) {
        status = compare_audit();
        if (status.ok() && audit_.active()) continue;  // a third member computes the leaf
        if (status.ok()) status = reduce_and_commit();
        if (!status.ok()) break;
        REGROUP_RETURN_IF_ERROR(set_committed());
        return std::optional<Shard>();
      }
      Shard shard = make_shard(*leaf);
      if (!sampler_ || !shard.samples.empty()) return std::optional(std::move(shard));
      if (filling_on_device_)
        REGROUP_RETURN_IF_ERROR(plane_->clear(host_leaf_));
      else
        std::fill(host_leaf_.begin(), host_leaf_.end(), std::byte{0});
      seal();
    }
    if (status.code() != Code::kRevoked) return status;
    tell(audit_.drop(world()));
    REGROUP_ASSIGN_OR_RETURN(auto joined, regroup());
    if (joined == Participant::Joined::kOpenIsCommitted) {
      observe(StepEvent::kCommitted);
      REGROUP_RETURN_IF_ERROR(set_committed());
      return std::optional<Shard>();
    }
    owners_ = proto::owners_of(world(), applied_ + 1);
    leaves_.keep_owned(owners_, self_->slot_id());
  }
}

bool Session::Impl::lies_right(const SealedSum& sum) const {
  if (sum.on_device == sums_on_device()) return true;
  const bool lives = world().rank_of({self_->slot_id().node, sum.slot}) >= 0;
  if (lives) return false;  // its owner moves it when it enters the World
  // The sum of a dead member: on the GPU each member takes a copy of its own.
  return sums_on_device() || (plane_ && plane_->copies_for_all());
}

Result<std::vector<SealedSum>> Session::Impl::await_sums(Step step) {
  for (;;) {
    std::optional<std::vector<SealedSum>> sums;
    Status failed;
    const auto all_sealed = [&] {
      if (plane_) failed = plane_->status();
      if (!failed.ok()) return true;
      sums = sealed_sums(self_->arena(), step, owners_);
      if (sums && !std::ranges::all_of(*sums, [&](const auto& sum) { return lies_right(sum); }))
        sums.reset();
      return sums.has_value();
    };
    std::optional<TimelineSpan> span;
    if (timeline_ && !all_sealed())
      span.emplace(timeline_.get(), "wait for gradients", missing_members());
    const Status waited = self_->wait(
        all_sealed, fmt::format("step {}: the gradients of other members did not arrive", step));
    if (waited.code() == Code::kDeadlineExceeded && plane_)
      REGROUP_RETURN_IF_ERROR(plane_->overdue());
    REGROUP_RETURN_IF_ERROR(waited);
    REGROUP_RETURN_IF_ERROR(failed);
    REGROUP_ASSIGN_OR_RETURN(const bool moved, move_to_arena(*sums));
    if (!moved) return std::move(*sums);
  }
}

Result<bool> Session::Impl::move_to_arena(const std::vector<SealedSum>& sums) {
  bool moved = false;
  for (const SealedSum& sum : sums) {
    if (sums_on_device() || !sum.on_device) continue;
    REGROUP_RETURN_IF_ERROR(plane_->copy_to_arena(sum.slot, sum.buffer));
    self_->arena().member_slot(sum.slot).on_device.fetch_and(~(1U << sum.buffer),
                                                             std::memory_order_release);
    moved = true;
  }
  if (moved) shmem::ring_all(self_->arena(), self_->slot_id().slot);
  return moved;
}

Status Session::Impl::reduce_on_device(Step step, const std::vector<SealedSum>& sums,
                                       base::TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(plane_->reduce(sums, owners_, device_->sum(), deadline));
  sum_on_device_ = true;
  const shmem::Arena& arena = self_->arena();
  // The agent sets this word before members open the step after which it keeps results.
  if (!plane_->copies_for_all() || arena.snapshot_at().load(std::memory_order_seq_cst) == 0)
    return {};
  REGROUP_RETURN_IF_ERROR(
      self_->wait([&] { return shmem::all_left_before(arena, world().generation); },
                  fmt::format("step {}: members of earlier generations did not leave", step)));
  return device_->copy_sum_to(arena.result(step));
}

Status Session::Impl::reduce(Step step, const std::vector<SealedSum>& sums,
                             base::TimePoint deadline) {
  if (sums_on_device()) return reduce_on_device(step, sums, deadline);
  sum_on_device_ = false;
  const shmem::Arena& arena = self_->arena();
  const collective::SumBlocks blocks{arena.result_blocks(step), &arena.result_generation(step),
                                     static_cast<std::uint32_t>(step)};
  return data_plane_.step_communicator().tree_reducer().reduce(partials_of(arena, sums),
                                                               self_->shards(), arena.result(step),
                                                               options_.dtype, deadline, blocks);
}

Status Session::Impl::compare_audit() {
  if (!audit_.active()) return {};
  // With the errors of that wait: members may still compute for long.
  REGROUP_RETURN_IF_ERROR(await_sums(applied_ + 1).status());
  TimelineSpan span(timeline_.get(), "audit");
  auto finding = audit_.compare(data_plane_.step_communicator(), world(),
                                base::SystemClock().now() + options_.deadline);
  REGROUP_RETURN_IF_ERROR(finding.status());
  if (finding->undecided) {
    self_->end_diverged(finding->difference);
    return broken_ = base::data_loss(finding->difference);
  }
  if (!finding->own_fault) return {};
  leaves_.begin(applied_ + 1);  // before this member is lost, so that the others compute them again
  return broken_ = base::data_loss(finding->difference);
}

Status Session::Impl::reduce_and_commit() {
  const Step step = applied_ + 1;
  REGROUP_ASSIGN_OR_RETURN(const auto sums, await_sums(step));
  observe(StepEvent::kGathered);
  TimelineSpan span(timeline_.get(), "reduce", timeline_ ? described_sum() : std::string());
  const base::TimePoint deadline = base::SystemClock().now() + options_.deadline;
  REGROUP_RETURN_IF_ERROR(reduce(step, sums, deadline));
  observe(StepEvent::kReduced);
  end_spans(1);
  TimelineSpan voting(timeline_.get(), "vote");
  if (check_.due(world(), applied_)) {
    std::vector<int> ranks(world().size());
    std::iota(ranks.begin(), ranks.end(), 0);
    REGROUP_RETURN_IF_ERROR(compare_states(data_plane_.step_communicator(), ranks, deadline));
  }
  // The ledger has the line of every step before this one: docs/design/ledger.md.
  REGROUP_RETURN_IF_ERROR(write_ledger(applied_));
  // After this barrier every host has the whole result, so any member may commit. If a revoke comes
  // between barrier and commit(), the resume position of the next World decides.
  REGROUP_RETURN_IF_ERROR(vote(deadline));
  REGROUP_RETURN_IF_ERROR(self_->commit());
  observe(StepEvent::kCommitted);
  return {};
}

// The vote also says whether a save of the state after this step is made, before which the
// states are compared: members on rank 0's host read that in the arena, members on other hosts
// learn it by the vote. In plane nccl it says how far members have connected.
Status Session::Impl::vote(base::TimePoint deadline) {
  const Step step = applied_ + 1;
  const bool saves = save_wanted(*self_, step, checkpointing_);
  const bool connects = has_plane_of_gpus() && data_plane_.spans_hosts() && !rails_->connected();
  if (rails_) rails_->watch();
  const HostRails::Vote rails = connects ? rails_->vote() : HostRails::Vote();
  // How many members say so.
  std::int64_t counts[] = {saves && self_->rank() == 0 ? 1 : 0, rails.knows ? 1 : 0,
                           rails.connected ? 1 : 0};
  if (data_plane_.spans_hosts() && (checkpointing_.every > 0 || connects)) {
    const auto words = std::as_writable_bytes(std::span(counts).first(connects ? 3 : 1));
    REGROUP_RETURN_IF_ERROR(data_plane_.step_communicator().allreduce(
        words, words, collective::Dtype::kInt64, deadline));
  } else {
    counts[0] = saves ? 1 : 0;
    REGROUP_RETURN_IF_ERROR(data_plane_.step_communicator().barrier(deadline));
  }
  const auto all = static_cast<std::int64_t>(world().size());
  if (connects) REGROUP_RETURN_IF_ERROR(rails_->on_vote({counts[1] == all, counts[2] == all}));
  if (counts[0] > 0 && checkpointing_.compared) check_.await_save(world().generation, step);
  return {};
}

Status Session::Impl::compare_states(Communicator& communicator, const std::vector<int>& ranks,
                                     base::TimePoint deadline) {
  std::vector<proto::MemberId> members;
  for (const int rank : ranks)
    members.push_back(world().members[static_cast<std::size_t>(rank)].id);
  auto different =
      check_.compare(communicator, members, world(), *options_.state, applied_, deadline);
  if (!different.ok()) return different.status();
  if (!*different) {
    confirm_save(*self_, applied_, checkpointing_);
    return {};
  }
  if (!last_state_step_ && loop_state_ == LoopState::kIdle)
    **different += "; finish() compared the present states, so changes after the last step count";
  self_->end_diverged(**different);
  return broken_ = base::data_loss(**different);
}

Result<std::span<const std::byte>> Session::Impl::commit() {
  if (loop_state_ != LoopState::kCommitted)
    return base::invalid_argument("commit() called before next_shard() returned no shard");
  const std::span<const std::byte> sum = whole_sum().first(gradient_bytes());
  if (!device_) return sum;
  if (sum_on_device_ && !learning_) return std::span<const std::byte>(device_->sum());
  return device_->copy_sum(sum);
}

std::span<const std::byte> Session::Impl::whole_sum() const {
  const shmem::Arena& arena = self_->arena();
  return learning_ ? arena.kept_result(applied_ + 1) : arena.result(applied_ + 1);
}

Result<std::vector<SaveTarget>> Session::Impl::save_targets() {
  if (loop_state_ != LoopState::kCommitted)
    return base::invalid_argument("save_targets() called before next_shard() returned no shard");
  std::vector<SaveTarget> out;
  if (learning_) return out;
  REGROUP_RETURN_IF_ERROR(
      plan_save(*self_, *options_.state, applied_ + 1, checkpointing_, &saving_));
  for (const SavePlan::Part& part : saving_.parts) out.push_back(part.target);
  return out;
}

Status Session::Impl::try_section(Position at, const Body& body, bool compare) {
  std::vector<int> ranks;
  for (int r = 0; r < static_cast<int>(world().size()); ++r) {
    if (world().members[static_cast<std::size_t>(r)].from_step <= applied_) ranks.push_back(r);
  }
  REGROUP_ASSIGN_OR_RETURN(auto communicator, data_plane_.open_section(at, ranks));
  if (compare || check_.save_waits(world().generation, applied_)) {
    const base::TimePoint deadline = base::SystemClock().now() + options_.deadline;
    REGROUP_RETURN_IF_ERROR(compare_states(*communicator, ranks, deadline));
  }
  REGROUP_RETURN_IF_ERROR(body(*communicator));
  // The vote.
  REGROUP_RETURN_IF_ERROR(communicator->barrier(base::SystemClock().now() + options_.deadline));
  return self_->commit();
}

Status Session::Impl::collective(const Body& body) { return run_section(body, false); }

Status Session::Impl::run_section(const Body& body, bool compare) {
  REGROUP_RETURN_IF_ERROR(broken_);
  if (loop_state_ == LoopState::kComputing)
    return base::invalid_argument("collective: called while a step is open");
  if (loop_state_ == LoopState::kCommitted) REGROUP_RETURN_IF_ERROR(mark_applied());
  if (!took_part()) return section_alone(body);
  if (sections_ == 255)
    return base::invalid_argument(
        "collective: more than 255 collective sections between two steps");
  const Position at = Position::of(applied_, sections_ + 1);
  TimelineSpan span(timeline_.get(), compare ? "finish" : "collective section");
  REGROUP_RETURN_IF_ERROR(open(at));
  for (;;) {
    const Status status = try_section(at, body, compare);
    if (!status.ok() && status.code() != Code::kRevoked) return broken_ = status;
    if (status.ok()) break;
    REGROUP_ASSIGN_OR_RETURN(auto joined, regroup());
    if (joined == Participant::Joined::kOpenIsCommitted)
      break;  // all members have voted, so `body` returned OK here too
  }
  sections_ += 1;
  return {};
}

Status Session::Impl::section_alone(const std::function<Status(Communicator&)>& body) {
  auto communicator = data_plane_.open_section_alone(Position::of(applied_));
  return communicator.ok() ? body(**communicator) : communicator.status();
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;
Result<std::optional<StepInfo>> Session::next_step() {
  REGROUP_RETURN_IF_ERROR(impl_->check_thread("next_step"));
  return impl_->next_step();
}
Status Session::fill_gradient(std::span<const GradientPart> parts) {
  REGROUP_RETURN_IF_ERROR(impl_->check_thread("fill_gradient"));
  return impl_->fill_gradient(parts);
}
Status Session::change_stream(void* stream) {
  REGROUP_RETURN_IF_ERROR(impl_->check_thread("change_stream"));
  return impl_->change_stream(stream);
}

Result<std::optional<Shard>> Session::next_shard() {
  REGROUP_RETURN_IF_ERROR(impl_->check_thread("next_shard"));
  return impl_->next_shard();
}
Result<std::span<const std::byte>> Session::commit() {
  REGROUP_RETURN_IF_ERROR(impl_->check_thread("commit"));
  return impl_->commit();
}
Result<std::vector<SaveTarget>> Session::save_targets() {
  REGROUP_RETURN_IF_ERROR(impl_->check_thread("save_targets"));
  return impl_->save_targets();
}
void Session::saved(std::size_t target) { impl_->saved(target); }
SaveCounts Session::save_counts() const { return impl_->save_counts(); }
void Session::report_loss(double loss) { impl_->report_loss(loss); }
int Session::begin_span(std::string_view name) { return impl_->begin_span(name); }
void Session::end_span(int span) { impl_->end_span(span); }
Status Session::collective(const std::function<Status(Communicator&)>& body) {
  REGROUP_RETURN_IF_ERROR(impl_->check_thread("collective"));
  return impl_->collective(body);
}
Status Session::leave_loop() {
  REGROUP_RETURN_IF_ERROR(impl_->check_thread("leave_loop"));
  return impl_->leave_loop();
}
Status Session::finish() {
  REGROUP_RETURN_IF_ERROR(impl_->check_thread("finish"));
  return impl_->finish();
}
Status Session::record_samples(std::span<const std::uint64_t> samples) {
  REGROUP_RETURN_IF_ERROR(impl_->check_thread("record_samples"));
  return impl_->record_samples(samples);
}
std::vector<Shard> Session::planned_shards(proto::Step step) const {
  return impl_->planned_shards(step);
}
Shard Session::shard_of(proto::Step step, std::uint32_t leaf) const {
  return impl_->shard_of(step, leaf);
}
proto::Step Session::last_step() const { return impl_->last_step(); }
std::uint64_t Session::job_seed() const { return impl_->seed(); }

WorldInfo Session::world() const { return impl_->describe_world(); }

}  // namespace regroup::elastic
