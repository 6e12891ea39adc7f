// The transaction of docs/architecture.md section 3: compute, reduce, vote, commit, apply; and the regroup
// inside it.
#include "elastic/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <limits>

#include "core/arena.h"
#include "elastic/data_plane.h"
#include "elastic/donors.h"
#include "elastic/fetch.h"
#include "elastic/leaves.h"
#include "elastic/migrate.h"
#include "elastic/options.h"
#include "elastic/participant.h"
#include "elastic/sampler.h"

namespace regroup::elastic {

using collective::Communicator;
using core::Code;
using core::Position;
using core::Result;
using core::Status;

const char* name_of(Moment moment) {
  switch (moment) {
    case Moment::kRevoked:
      return "revoked";
    case Moment::kJoined:
      return "joined";
    case Moment::kSealed:
      return "sealed";
    case Moment::kGathered:
      return "gathered";
    case Moment::kReduced:
      return "reduced";
    case Moment::kCommitted:
      return "committed";
  }
  return "?";
}

class Session::Impl {
 public:
  Impl(Options options, std::unique_ptr<Participant> self);

  [[nodiscard]] Status enter();
  [[nodiscard]] Result<std::optional<StepInfo>> next_step();
  [[nodiscard]] Result<std::optional<Shard>> next_shard();
  [[nodiscard]] Result<std::span<const std::byte>> commit();
  [[nodiscard]] Status region(const std::function<Status(Communicator&)>& body);
  [[nodiscard]] Status finish();
  void report_loss(double loss) { self_->line().loss.store(loss, std::memory_order_relaxed); }

  [[nodiscard]] const core::World& world() const { return self_->world(); }
  [[nodiscard]] int rank() const { return self_->rank(); }
  [[nodiscard]] core::Step last_step() const { return phase_ == Phase::kCommitted ? applied_ + 1 : applied_; }
  [[nodiscard]] std::uint64_t seed() const { return self_->seed(); }

 private:
  using Step = core::Step;
  enum class Phase { kIdle, kComputing, kCommitted };

  [[nodiscard]] Result<Participant::Joined> regroup();
  [[nodiscard]] Status settle_into_world();
  [[nodiscard]] Status open(Position next);
  [[nodiscard]] StepInfo describe(Step step) const;
  void finish_apply();
  // Stands at this boundary, in whatever World comes, until the agent lets this member go: kLeft.
  [[nodiscard]] Status drain();
  // False for a newcomer before its first step: it is no party to what follows the step whose state it
  // copied.
  [[nodiscard]] bool took_part() const { return self_->self().from_step <= applied_; }
  [[nodiscard]] Status region_alone(const std::function<Status(Communicator&)>& body);

  [[nodiscard]] std::optional<std::uint32_t> next_leaf() const;
  [[nodiscard]] Shard hand_out(std::uint32_t leaf);
  void seal_filled();
  void observe(Moment moment) const {
    if (options_.observer) options_.observer(moment, applied_ + 1);
  }
  // kRevoked leads to a regroup; after it either more leaves are to be computed, or the step turned out to be
  // committed.
  [[nodiscard]] Status reduce_and_commit();
  [[nodiscard]] Status try_region(Position at, const std::function<Status(Communicator&)>& body);

  const Options options_;
  const std::unique_ptr<Participant> self_;
  std::optional<Sampler> sampler_;
  Leaves leaves_;
  DataPlane data_plane_;
  std::vector<core::Seat> owners_;  // of the leaves of the open step, in world()
  Phase phase_ = Phase::kIdle;
  Status broken_;         // a region failed and stays open; sticky
  bool filling_ = false;  // a leaf is handed out
  Step applied_ = 0;      // everything up to here is applied to the caller's state
  unsigned regions_ = 0;  // committed since applied_
};

Session::Impl::Impl(Options options, std::unique_ptr<Participant> self)
    : options_(std::move(options)),
      self_(std::move(self)),
      leaves_(&self_->arena(), self_->seat().slot, options_.dtype),
      data_plane_(*self_) {
  if (options_.samples > 0)
    sampler_.emplace(self_->seed(), options_.samples, options_.batch, self_->shards());
}

Status Session::Impl::enter() {
  auto joined = regroup();
  if (!joined.ok()) return joined.status();
  applied_ = world().resume.step();
  return {};
}

Result<Participant::Joined> Session::Impl::regroup() {
  observe(Moment::kRevoked);
  for (;;) {
    auto joined = self_->regroup();
    if (!joined.ok() || *joined == Participant::Joined::kCommittedOpen) return joined;
    Status settled = settle_into_world();
    if (settled.ok()) observe(Moment::kJoined);
    if (settled.ok()) return Participant::Joined::kInWorld;
    if (settled.code() != Code::kRevoked) return settled;
  }
}

Status Session::Impl::settle_into_world() {
  REGROUP_RETURN_IF_ERROR(data_plane_.enter());
  if (!has_newcomers(world())) return {};
  const core::TimePoint deadline = core::SystemClock().now() + options_.deadline;
  if (!self_->self().needs_state) {
    REGROUP_RETURN_IF_ERROR(donate_state(*self_, *options_.state));
    return send_state(*self_, data_plane_.steps(), deadline);
  }
  REGROUP_RETURN_IF_ERROR(fetch_state(*self_, data_plane_.steps(), deadline));
  REGROUP_RETURN_IF_ERROR(adopt_state(*self_, *options_.state));
  applied_ = world().resume.step();
  regions_ = 0;
  return {};
}

Status Session::Impl::open(Position next) {
  for (;;) {
    Status status = self_->open(next);
    if (status.code() != Code::kRevoked) return status;
    auto joined = regroup();
    if (!joined.ok()) return joined.status();
  }
}

StepInfo Session::Impl::describe(Step step) const {
  if (!sampler_) return {step, 0, options_.batch, step == 1};
  const Batch batch = sampler_->batch_of(step);
  return {step, batch.epoch, batch.end - batch.begin, batch.begin == 0};
}

void Session::Impl::finish_apply() {
  core::Line& line = self_->line();
  applied_ += 1;
  regions_ = 0;
  phase_ = Phase::kIdle;
  line.step.store(applied_, std::memory_order_relaxed);
  line.applied_at.store(static_cast<std::uint64_t>(core::SystemClock().now().time_since_epoch().count()),
                        std::memory_order_relaxed);
}

Status Session::Impl::drain() {
  REGROUP_RETURN_IF_ERROR(self_->announce_drained());
  for (;;) {
    Status status = self_->wait([] { return false; }, "leave: the agent did not let this member go");
    if (status.code() != Code::kRevoked) return status;
    if (auto joined = regroup(); !joined.ok()) return joined.status();
    if (took_part() && !self_->asked_to_leave())
      return {};  // the others are gone and this one has their state
  }
}

Result<std::optional<StepInfo>> Session::Impl::next_step() {
  REGROUP_RETURN_IF_ERROR(broken_);
  if (phase_ == Phase::kComputing)
    return core::invalid_argument("next_step: the step before is not committed");
  if (phase_ == Phase::kCommitted) finish_apply();
  if (self_->asked_to_leave()) REGROUP_RETURN_IF_ERROR(drain());
  if (sampler_ && options_.epochs > 0 && describe(applied_ + 1).epoch >= options_.epochs) {
    if (!took_part()) REGROUP_RETURN_IF_ERROR(drain());  // joined after the last step: nothing is left to do
    return std::optional<StepInfo>();
  }
  REGROUP_RETURN_IF_ERROR(open(Position::of(applied_ + 1)));
  leaves_.begin(applied_ + 1);
  owners_ = core::owners_of(world(), applied_ + 1);
  phase_ = Phase::kComputing;
  return std::optional(describe(applied_ + 1));
}

std::optional<std::uint32_t> Session::Impl::next_leaf() const {
  for (std::uint32_t leaf = 0; leaf < owners_.size(); ++leaf) {
    if (owners_[leaf] == self_->seat() && !leaves_.holds(leaf)) return leaf;
  }
  return std::nullopt;
}

Shard Session::Impl::hand_out(std::uint32_t leaf) {
  const Step step = applied_ + 1;
  Shard shard;
  shard.leaf = leaf;
  if (sampler_) shard.samples = sampler_->samples_of(step, leaf);
  shard.gradient = leaves_.acquire(leaf);
  shard.seed = mix(seed(), step, leaf);
  filling_ = true;
  return shard;
}

void Session::Impl::seal_filled() {
  if (!filling_) return;
  filling_ = false;
  leaves_.seal();
  observe(Moment::kSealed);
  core::ring_all(self_->arena(), self_->seat().slot);
}

Result<std::optional<Shard>> Session::Impl::next_shard() {
  if (phase_ == Phase::kIdle) return core::invalid_argument("next_shard: no step is open");
  if (phase_ == Phase::kCommitted) return std::optional<Shard>();
  seal_filled();
  for (;;) {
    Status status = self_->revoked() ? Status(Code::kRevoked, "revoked") : Status();
    while (status.ok()) {
      const auto leaf = next_leaf();
      if (!leaf) {
        status = reduce_and_commit();
        if (!status.ok()) break;
        phase_ = Phase::kCommitted;
        return std::optional<Shard>();
      }
      Shard shard = hand_out(*leaf);
      if (!sampler_ || !shard.samples.empty()) return std::optional(std::move(shard));
      std::fill(shard.gradient.begin(), shard.gradient.end(), std::byte{0});
      seal_filled();
    }
    if (status.code() != Code::kRevoked) return status;
    auto joined = regroup();
    if (!joined.ok()) return joined.status();
    if (*joined == Participant::Joined::kCommittedOpen) {
      phase_ = Phase::kCommitted;
      observe(Moment::kCommitted);
      return std::optional<Shard>();
    }
    owners_ = core::owners_of(world(), applied_ + 1);
    leaves_.keep_owned(owners_, self_->seat());
  }
}

Status Session::Impl::reduce_and_commit() {
  const Step step = applied_ + 1;
  std::optional<std::vector<collective::Partial>> partials;
  const auto all_sealed = [&] {
    if (!partials) partials = sealed_partials(self_->arena(), step, owners_);
    return partials.has_value();
  };
  REGROUP_RETURN_IF_ERROR(
      self_->wait(all_sealed, fmt::format("step {}: the gradients of other members did not come", step)));
  observe(Moment::kGathered);
  const core::TimePoint deadline = core::SystemClock().now() + options_.deadline;
  REGROUP_RETURN_IF_ERROR(data_plane_.steps().sum_partials(
      *partials, self_->shards(), self_->arena().result(step), options_.dtype, deadline));
  observe(Moment::kReduced);
  REGROUP_RETURN_IF_ERROR(
      data_plane_.steps().barrier(deadline));  // the vote: the whole result can be read here
  REGROUP_RETURN_IF_ERROR(self_->commit());
  observe(Moment::kCommitted);
  return {};
}

Result<std::span<const std::byte>> Session::Impl::commit() {
  if (phase_ != Phase::kCommitted)
    return core::invalid_argument("commit: next_shard() has not returned nothing yet");
  return std::span<const std::byte>(self_->arena().result(applied_ + 1));
}

Status Session::Impl::try_region(Position at, const std::function<Status(Communicator&)>& body) {
  std::vector<int> ranks;
  for (int r = 0; r < static_cast<int>(world().size()); ++r) {
    if (world().members[static_cast<std::size_t>(r)].from_step <= applied_) ranks.push_back(r);
  }
  auto communicator = data_plane_.region(at, std::move(ranks));
  if (!communicator.ok()) return communicator.status();
  REGROUP_RETURN_IF_ERROR(body(**communicator));
  REGROUP_RETURN_IF_ERROR(
      (*communicator)->barrier(core::SystemClock().now() + options_.deadline));  // the vote
  return self_->commit();
}

Status Session::Impl::region(const std::function<Status(Communicator&)>& body) {
  REGROUP_RETURN_IF_ERROR(broken_);
  if (phase_ == Phase::kComputing) return core::invalid_argument("region: a step is open");
  if (phase_ == Phase::kCommitted) finish_apply();
  if (!took_part()) return region_alone(body);
  if (regions_ == 255) return core::invalid_argument("region: more than 255 between two steps");
  const Position at = Position::of(applied_, regions_ + 1);
  REGROUP_RETURN_IF_ERROR(open(at));
  for (;;) {
    const Status status = try_region(at, body);
    if (!status.ok() && status.code() != Code::kRevoked) return broken_ = status;
    if (status.ok()) break;
    auto joined = regroup();
    if (!joined.ok()) return joined.status();
    if (*joined == Participant::Joined::kCommittedOpen)
      break;  // everybody voted, so `body` had returned ok here too
  }
  regions_ += 1;
  return {};
}

Status Session::Impl::region_alone(const std::function<Status(Communicator&)>& body) {
  auto communicator = data_plane_.region(Position::of(applied_), {rank()});
  return communicator.ok() ? body(**communicator) : communicator.status();
}

Status Session::Impl::finish() {
  if (phase_ == Phase::kCommitted) finish_apply();
  if (!took_part()) REGROUP_RETURN_IF_ERROR(drain());
  REGROUP_RETURN_IF_ERROR(region([](Communicator&) { return Status(); }));
  self_->line().finished.store(1, std::memory_order_release);
  self_->leave_for_good();
  return {};
}

namespace {

Status check(const Options& options) {
  if (options.elements == 0) return core::invalid_argument("join: a gradient of 0 elements");
  if (options.state == nullptr) return core::invalid_argument("join: no state is tracked");
  if (options.dtype != collective::Dtype::kFloat32 && options.dtype != collective::Dtype::kFloat64) {
    return core::invalid_argument("join: gradients are float32 or float64");
  }
  if (options.deadline < std::chrono::seconds(1) || options.deadline > std::chrono::hours(24 * 365)) {
    return core::invalid_argument(
        fmt::format("join: a deadline of {} s is not from 1 s to a year", options.deadline.count()));
  }
  if (options.samples > 0 && options.batch == 0) return core::invalid_argument("join: a batch of 0 samples");
  return {};
}

}  // namespace

Result<std::unique_ptr<Session>> Session::join(const Options& options) {
  REGROUP_RETURN_IF_ERROR(check(options));
  auto env = read_environment();
  if (!env.ok()) return env.status();
  core::Join declaration;
  declaration.elements = options.elements;
  declaration.element_bytes = static_cast<std::uint32_t>(collective::size_of(options.dtype));
  declaration.state_bytes = options.state->capacity();
  declaration.model = fmt::format("{} samples={} batch={} epochs={}", options.model, options.samples,
                                  options.batch, options.epochs);
  declaration.fingerprint = options.fingerprint.empty() ? default_fingerprint() : options.fingerprint;
  auto self = Participant::connect(*env, std::move(declaration), options.deadline);
  if (!self.ok()) return self.status();
  auto impl = std::make_unique<Impl>(options, std::move(*self));
  REGROUP_RETURN_IF_ERROR(impl->enter());
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;
Result<std::optional<StepInfo>> Session::next_step() { return impl_->next_step(); }
Result<std::optional<Shard>> Session::next_shard() { return impl_->next_shard(); }
Result<std::span<const std::byte>> Session::commit() { return impl_->commit(); }
void Session::report_loss(double loss) { impl_->report_loss(loss); }
Status Session::region(const std::function<Status(Communicator&)>& body) { return impl_->region(body); }
Status Session::finish() { return impl_->finish(); }
core::Step Session::last_step() const { return impl_->last_step(); }
std::uint64_t Session::job_seed() const { return impl_->seed(); }

WorldInfo Session::world() const {
  const core::World& world = impl_->world();
  return {world.generation, impl_->rank(), static_cast<int>(world.size()), world.shards, world.why};
}

}  // namespace regroup::elastic
