// Entering a World: at the start of the job, by a copy within the regroup, or as a learner.
// docs/design/catch_up.md.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "collective/backends/backends.h"
#include "elastic/carrier_settings.h"
#include "elastic/device_health.h"
#include "elastic/donors.h"
#include "elastic/failure_report.h"
#include "elastic/fetch.h"
#include "elastic/ledger_marks.h"
#include "elastic/options.h"
#include "elastic/session_impl.h"
#include "elastic/state_donation.h"
#include "membership/declaration.h"
#include "proto/transfer_step.h"
#include "shmem/arena.h"

namespace regroup::elastic {

using base::Code;
using base::Result;
using base::Status;

Status Session::Impl::enter() {
  observe(StepEvent::kRevoked);
  TimelineSpan span(timeline_.get(), "join");
  while (!learning_) {
    REGROUP_ASSIGN_OR_RETURN(auto joined, self_->regroup_or([this] { return transfer_offered(); }));
    if (!joined.has_value()) {
      REGROUP_RETURN_IF_ERROR(load_transfer());
      continue;
    }
    Status settled = enter_world();
    if (settled.ok()) observe(StepEvent::kJoined);
    if (settled.code() == Code::kRevoked) settled = regroup().status();
    if (settled.ok()) applied_ = begun_ = world().resume.step();
    if (settled.ok() && timeline_) span.set_args(described_world());
    return settled;
  }
  return {};
}

bool Session::Impl::transfer_offered() const {
  const std::uint64_t transfer = self_->own_slot().transfer.load(std::memory_order_acquire);
  return transfer != 0 && transfer != transfer_;
}

// After a cancelled or damaged transfer another one follows, or a World.
Status Session::Impl::load_transfer() {
  transfer_ = self_->own_slot().transfer.load(std::memory_order_acquire);
  torn_ = true;
  const auto step = load_snapshot(*self_, *options_.state);
  if (step.code() == Code::kUnavailable || step.code() == Code::kDataLoss) return {};
  if (!step.ok()) return step.status();
  applied_ = begun_ = *step;
  learning_ = true;
  torn_ = false;
  return {};
}

Result<bool> Session::Impl::catch_up() {
  if (!learning_) return false;
  TimelineSpan span(timeline_.get(), "catch up");
  while (learning_) {
    if (self_->asked_to_leave()) REGROUP_RETURN_IF_ERROR(drain());
    if (in_world() && !torn_ && applied_ >= world().resume.step()) {
      learning_ = false;
      self_->own_slot().proved.store(world().generation, std::memory_order_release);
      return false;
    }
    REGROUP_RETURN_IF_ERROR(await_replay());
    if (learning_ && next_result_is_kept()) {
      if (result_is_sound(self_->arena(), applied_ + 1)) return true;
      refuse_result();
    }
    if (learning_ && transfer_offered()) REGROUP_RETURN_IF_ERROR(load_transfer());
  }
  return false;
}

bool Session::Impl::next_result_is_kept() const {
  const proto::Step next = applied_ + 1;
  return !torn_ && self_->arena().kept_step(next).load(std::memory_order_acquire) == next;
}

// The World that admits this learner comes in its place, or the next one if that is revoked.
Status Session::Impl::await_replay() {
  const auto something = [this] {
    return transfer_offered() || next_result_is_kept() || self_->asked_to_leave();
  };
  Status status;
  if (in_world()) {
    status =
        self_->wait(something, fmt::format("step {}: the result did not arrive", applied_ + 1));
  } else {
    auto joined = self_->regroup_or(something);
    status = joined.status();
    if (joined.ok() && joined->has_value()) {
      status = enter_world();
      if (status.ok()) observe(StepEvent::kJoined);
    }
  }
  if (status.code() == Code::kRevoked) status = regroup().status();
  return status;
}

// The agent reports this to the coordinator, which starts another state transfer or a copy.
void Session::Impl::refuse_result() {
  const auto mark = proto::TransferStep::unpack(transfer_);
  self_->own_slot().replayed.store(proto::TransferStep{mark.transfer, 0}.pack(),
                                   std::memory_order_release);
  torn_ = true;
}

namespace {

// Reports what `what` is not good for: a checkpoint that cannot be loaded, without which no member
// has the state, or a ledger of another run, or one that another job holds, which may end. `kind`:
// of a failure that another member may not have. Not if the caller's load() threw, which the caller
// reports, nor if the World is over.
void tell_agent(const Status& failed, const std::string& what, const char* kind) {
  if (failed.code() == Code::kInternal || failed.code() == Code::kRevoked) return;
  const bool other = failed.code() == Code::kInvalidArgument;  // every member finds it so
  (void)report_failure(
      {.kind = other ? "refused " + what : kind, .message = failed.message(), .final = other});
}

}  // namespace

Status Session::Impl::enter_world() {
  if (has_plane_of_gpus() && !plane_)
    return base::internal_error(fmt::format("World {} sums on GPUs, this member cannot: {}",
                                            world().generation, self_->why_not_cuda()));
  if (rails_) REGROUP_RETURN_IF_ERROR(rails_->enter());
  REGROUP_RETURN_IF_ERROR(data_plane_.enter());
  if (has_plane_of_gpus()) REGROUP_RETURN_IF_ERROR(plane_->enter());
  if (plane_) {
    REGROUP_RETURN_IF_ERROR(leaves_.place(sums_on_device()));
    shmem::ring_all(self_->arena(), self_->slot_id().slot);
  }
  REGROUP_RETURN_IF_ERROR(resume_from_checkpoint());
  // Before another member can have the state of a step whose line is missing.
  if (!self_->own_member().needs_state && !self_->own_member().replays) {
    const Status written = write_ledger(world().resume.step());
    if (!written.ok()) tell_agent(written, "ledger", "ledger in use");
    REGROUP_RETURN_IF_ERROR(written);
  }
  if (!has_joining_members(world()) || self_->own_member().replays) return {};
  const base::TimePoint deadline = base::SystemClock().now() + options_.deadline;
  if (!self_->own_member().needs_state) {
    REGROUP_RETURN_IF_ERROR(donate_state(*self_, *options_.state));
    REGROUP_RETURN_IF_ERROR(send_state(*self_, data_plane_.step_communicator(), deadline));
    if (!ledger_ || self_->rank() != 0) return {};
    return permit_fetchers(world(), data_plane_.step_communicator(), deadline);
  }
  REGROUP_RETURN_IF_ERROR(fetch_state(*self_, data_plane_.step_communicator(), deadline, [&] {
    return ledger_ ? await_permit(world(), data_plane_.step_communicator(), deadline) : Status();
  }));
  REGROUP_RETURN_IF_ERROR(adopt_state(*self_, *options_.state));
  applied_ = world().resume.step();
  sections_ = 0;
  learning_ = torn_ = false;
  return {};
}

// The member that must have the state of the first World loads it; the others copy it as joining
// members do.
Status Session::Impl::resume_from_checkpoint() {
  const proto::WorldMember& self = self_->own_member();
  const proto::Step step = world().resume.step();
  if (self.needs_state || self.replays || applied_ >= step || checkpointing_.resume_from.empty())
    return {};
  const Status loaded = load_checkpoint(*self_, *options_.state, step, checkpointing_);
  if (!loaded.ok()) tell_agent(loaded, "checkpoint", proto::kUnreadableKind);
  REGROUP_RETURN_IF_ERROR(loaded);
  applied_ = step;
  return {};
}

WorldInfo Session::Impl::describe_world() const {
  const auto info = [](const proto::World& w, int rank) {
    return WorldInfo{w.generation, rank, static_cast<int>(w.size()), w.shards, w.why};
  };
  if (in_world()) return info(world(), self_->rank());
  const auto theirs = self_->arena().read_world(self_->arena().newest_world());
  return theirs.ok() ? info(*theirs, static_cast<int>(theirs->size()))
                     : WorldInfo{.shards = self_->shards()};
}

namespace {

Status check(const Options& options) {
  if (options.elements == 0)
    return base::invalid_argument("join: expected at least 1 gradient element, got 0");
  if (options.state == nullptr) return base::invalid_argument("join: Options::state is null");
  if (options.dtype != collective::Dtype::kFloat32 &&
      options.dtype != collective::Dtype::kFloat64) {
    return base::invalid_argument("join: expected gradients of float32 or float64");
  }
  if (options.deadline < std::chrono::seconds(1) ||
      options.deadline > std::chrono::hours(24 * 365)) {
    return base::invalid_argument(fmt::format(
        "join: expected a deadline from 1 s to a year, got {} s", options.deadline.count()));
  }
  if (options.device < 0)
    return base::invalid_argument(
        fmt::format("join: expected a device of at least 0, got {}", options.device));
  if (options.samples > 0 && options.batch == 0)
    return base::invalid_argument("join: expected a batch of at least 1 sample, got 0");
  if (options.drop_last && options.samples < options.batch) {
    return base::invalid_argument(
        fmt::format("join: drop_last leaves no batch: expected at least {} samples, got {}",
                    options.batch, options.samples));
  }
  if (options.substeps == 0 || (options.samples == 0 && options.substeps > 1)) {
    return base::invalid_argument(fmt::format(
        "join: expected {}, got {} substeps",
        options.samples == 0 ? "1 substep without a sampler" : "at least 1", options.substeps));
  }
  return {};
}

proto::TrainingPlan plan_of(const Options& options) {
  if (options.samples == 0) return {};
  const std::uint64_t short_batch = options.drop_last ? options.samples % options.batch : 0;
  return {options.samples - short_batch, options.batch, options.substeps, options.epochs};
}

// The elements of a leaf: the gradient and, with a ledger, its marks.
Result<std::uint64_t> leaf_elements(const Options& options, const Environment& env) {
  if (env.ledger.empty()) return options.elements;
  if (env.alone)
    return base::invalid_argument(
        "ledger: each rank trains alone, and a ledger has the steps of one training");
  const auto shards = Participant::expected_shards(env);
  if (!shards.ok()) return Status(shards.status().code(), "ledger: " + shards.status().message());
  return options.elements + mark_elements(*shards);
}

proto::PlaneFacts planes_of(const Options& options, const Environment& env) {
  collective::backends::GradientMemory memory;
  memory.device = options.memory == Memory::kDevice || options.staged_by_caller;
  if (options.memory == Memory::kDevice) memory.gpu = options.device;
  const auto carriers = carrier_settings(env);
  memory.mpi = carriers ? &*carriers : nullptr;
  memory.no_nccl = why_not_nccl();
  proto::PlaneFacts planes = collective::backends::plane_facts(memory);
  std::string& cuda = planes.reasons[static_cast<std::size_t>(proto::Plane::kCuda)];
  // A binding that could not use the device copies for that reason.
  if (options.staged_by_caller && env.device_memory > 0)
    if (std::string why = why_not_on_device(options.device); !why.empty()) cuda = std::move(why);
  if (cuda.empty() && !env.ledger.empty())
    cuda = "a ledger reads sums in the host's memory (--ledger)";
  return planes;
}

// Of a member of an elastic job, which another one can replace.
std::optional<proto::DeviceHealth> checked_device(const Options& options, const Environment& env,
                                                  const collective::cuda::DeviceKernels* kernels) {
  const bool on_device = options.memory == Memory::kDevice;
  if (!env.health || env.alone || env.fixed || env.agent_socket.empty()) return std::nullopt;
  // Without a context it is not known which GPU the caller uses.
  if (!on_device && !(options.staged_by_caller && has_device_context())) return std::nullopt;
  return check_device(options.device, on_device ? options.stream : nullptr, kernels,
                      env.health_limit);
}

}  // namespace

Result<std::uint32_t> Session::expected_shards() {
  REGROUP_ASSIGN_OR_RETURN(const auto env, read_environment());
  return Participant::expected_shards(env);
}

Result<std::unique_ptr<Session>> Session::join(const Options& options) {
  REGROUP_RETURN_IF_ERROR(check(options));
  REGROUP_ASSIGN_OR_RETURN(auto env, read_environment());
  proto::Join declaration;
  REGROUP_ASSIGN_OR_RETURN(declaration.elements, leaf_elements(options, env));
  declaration.element_bytes = static_cast<std::uint32_t>(collective::size_of(options.dtype));
  declaration.state_bytes = options.state->capacity();
  // Members of one job must agree on the epochs, but a job that resumes may have more than its
  // checkpoint.
  const std::size_t list = std::min(options.model.find(membership::kTensors), options.model.size());
  const std::string model =
      fmt::format("{}{}{}{} samples={} batch={}", std::string_view(options.model).substr(0, list),
                  options.substeps > 1 ? fmt::format(" substeps={}", options.substeps) : "",
                  options.shuffle ? "" : " shuffle=no", options.drop_last ? " drop_last=yes" : "",
                  options.samples, options.batch);
  declaration.model = fmt::format("{} epochs={}", model, options.epochs);
  declaration.model += std::string_view(options.model).substr(list, membership::kMostOfList);
  declaration.fingerprint =
      options.fingerprint.empty() ? default_fingerprint() : options.fingerprint;
  declaration.plan = plan_of(options);
  Checkpointing checkpointing{env.checkpoint_every,    env.resume_from,  model,
                              declaration.fingerprint, env.resume_local, env.job,
                              env.check_state};
  proto::PlaneFacts planes = planes_of(options, env);
  std::unique_ptr<DeviceStaging> device;
  std::optional<collective::cuda::DeviceKernels> kernels;
  if (options.memory == Memory::kDevice) {
    const std::size_t bytes = options.elements * collective::size_of(options.dtype);
    auto stream = DeviceStream::open(options.device, options.stream, options.deadline);
    if (!stream.ok())
      return Status(stream.code(), "join: Options::memory kDevice: " + stream.status().message());
    REGROUP_ASSIGN_OR_RETURN(device, DeviceStaging::open(std::move(*stream), bytes, options.sum));
    // Before Ready, so that a member without kernels trains over the host.
    if (auto loaded = collective::cuda::DeviceKernels::load(device->stream().driver()); loaded.ok())
      kernels = std::move(*loaded);
    else if (std::string& why = planes.reasons[static_cast<std::size_t>(proto::Plane::kCuda)];
             why.empty())
      why = loaded.status().message();
    // Without that the agent gives no memory that plane cuda alone uses.
    if (planes.reason(proto::Plane::kCuda).empty()) {
      if (auto gpu = device->stream().device(); gpu.ok()) {
        declaration.gpu = std::move(gpu->uuid);
        declaration.gpu_free = gpu->free;
      } else {
        planes.reasons[static_cast<std::size_t>(proto::Plane::kCuda)] = gpu.status().message();
      }
    }
  }
  proto::Ready ready{std::move(planes),
                     checked_device(options, env, kernels ? &*kernels : nullptr)};
  // No more is asked of a GPU that may hang. The coordinator refuses this member.
  const bool usable = !ready.health || ready.health->faults.empty();
  if (!usable && device) device->stream().abandon();
  if (std::string& why = ready.planes->reasons[static_cast<std::size_t>(proto::Plane::kCuda)];
      !usable && why.empty())
    why = ready.health->faults.front();
  // Before Ready, too.
  collective::cuda::MappedLine own;
  const auto use_line = [&](const ReceivedLines::Line& line) {
    auto mapped = DevicePlane::map_own(device->stream(), line);
    if (mapped.ok()) own = std::move(*mapped);
    return mapped.status();
  };
  REGROUP_ASSIGN_OR_RETURN(
      auto self,
      Participant::connect(env, std::move(declaration), std::move(ready), options.deadline,
                           device && usable ? use_line : Participant::UseLine()));
  if (!env.ledger.empty() &&
      self->arena().spec().elements != options.elements + mark_elements(self->shards()))
    return base::internal_error(fmt::format(
        "ledger: the job has {} shards, this member expected another number", self->shards()));
  std::unique_ptr<DevicePlane> plane;
  if (device && self->why_not_cuda().empty()) {
    REGROUP_ASSIGN_OR_RETURN(
        plane, DevicePlane::open(device->stream(), *self, *kernels, std::move(own), options.dtype,
                                 device->sum().size()));
  }
  std::unique_ptr<DeviceHarvest> harvest;
  if (kernels) harvest = std::make_unique<DeviceHarvest>(device->stream(), *kernels, options.dtype);
  const bool replaceable = !env.alone && !env.fixed && !env.agent_socket.empty();
  std::unique_ptr<Timeline> timeline;
  if (const std::string file = timeline_file(); !file.empty())
    timeline = std::make_unique<Timeline>(file, env.job, self->slot_id().node, env.member);
  auto impl = std::make_unique<Impl>(options, std::move(self), std::move(checkpointing),
                                     std::move(device), std::move(harvest), std::move(plane), env,
                                     replaceable, std::move(timeline));
  REGROUP_RETURN_IF_ERROR(impl->enter());
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

}  // namespace regroup::elastic
