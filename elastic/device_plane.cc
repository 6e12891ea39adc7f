// Order of a leaf: seal withdrawn -> work on the caller's stream -> event -> seal (Watcher). So a
// seal says that the leaf is complete, also if this process has died meanwhile.
#include "elastic/device_plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "collective/nccl/rails.h"
#include "shmem/arena.h"

namespace regroup::elastic {

using base::Result;
using base::Status;
using collective::cuda::DevicePointer;
using collective::cuda::DeviceRank;
using collective::cuda::MappedLine;

namespace {

constexpr proto::Interval kPair[] = {{0, 1}, {1, 2}};

std::span<std::byte> span_of(DevicePointer pointer, std::size_t bytes) {
  return {reinterpret_cast<std::byte*>(pointer), bytes};
}

}  // namespace

Result<std::unique_ptr<DevicePlane>> DevicePlane::open(const DeviceStream& stream,
                                                       Participant& self, Kernels kernels,
                                                       MappedLine own, collective::Dtype dtype,
                                                       std::size_t leaf_bytes) {
  std::unique_ptr<DevicePlane> plane(
      new DevicePlane(stream, self, std::move(kernels), dtype, leaf_bytes));
  REGROUP_RETURN_IF_ERROR(plane->prepare(std::move(own)));
  return plane;
}

Result<MappedLine> DevicePlane::map_own(const DeviceStream& stream,
                                        const ReceivedLines::Line& line) {
  return MappedLine::map(stream.driver(), line.descriptor.get(), line.line.bytes,
                         stream.device_index(), MappedLine::Access::kReadWrite,
                         fmt::format("the device line of slot {}", line.line.slot));
}

Status DevicePlane::prepare(MappedLine own) {
  scratch_ = std::make_unique<collective::cuda::DeviceScratch>(driver_);
  rail_scratch_ = std::make_unique<collective::nccl::RailScratch>(driver_);
  REGROUP_ASSIGN_OR_RETURN(pair_, collective::cuda::TreePlan::compile(kPair, 2));
  REGROUP_ASSIGN_OR_RETURN(watcher_,
                           collective::cuda::Watcher::start(
                               driver_, [&arena = self_.arena()] { shmem::ring_all(arena); }));
  REGROUP_RETURN_IF_ERROR(stream_.check(
      driver_.stream_create(&sums_, collective::cuda::kNonBlockingStream, 0), "cuStreamCreate"));
  const ReceivedLines::Line* const line = self_.device_lines().of(self_.slot_id().slot);
  own_ = &lines_.emplace(line->line.line, Line{std::move(own), line->line}).first->second;
  return {};
}

// Calls that free something wait for the device, which may not answer.
DevicePlane::~DevicePlane() {
  const bool late = watcher_ && watcher_->status().code() == base::Code::kDeadlineExceeded;
  if (late || (reducer_ && !reducer_->answers())) stream_.abandon();
  watcher_.reset();
  reducer_.reset();
  if (rails_ && stream_.answers() && !rails_->close().ok()) stream_.abandon();
  if (!stream_.drain()) {
    if (scratch_) scratch_->abandon();
    if (rail_scratch_) rail_scratch_->abandon();
    for (auto& [id, line] : lines_) line.memory.abandon();
    return;
  }
  for (const DevicePointer upload : uploads_) (void)driver_.memory_free(upload);
  if (sums_ != nullptr) (void)driver_.stream_destroy(sums_);
}

Status DevicePlane::overdue() const {
  Status status = watcher_->overdue();
  if (status.code() == base::Code::kDeadlineExceeded) stream_.abandon();
  return status;
}

Result<const DevicePlane::Line*> DevicePlane::map(proto::SlotIndex slot) {
  const ReceivedLines::Line* const line = self_.device_lines().of(slot);
  if (line == nullptr)
    return base::unavailable(fmt::format("the member in slot {} has no device line", slot));
  auto found = lines_.find(line->line.line);
  if (found == lines_.end()) {
    REGROUP_ASSIGN_OR_RETURN(auto mapped,
                             MappedLine::map(driver_, line->descriptor.get(), line->line.bytes,
                                             stream_.device_index(), MappedLine::Access::kReadOnly,
                                             fmt::format("the device line of slot {}", slot)));
    found = lines_.emplace(line->line.line, Line{std::move(mapped), line->line}).first;
  }
  return &found->second;
}

// Their memory is free when no member has them mapped. To unmap waits for the device, without a
// deadline.
Status DevicePlane::unmap_lost_lines() {
  std::set<proto::DeviceLineId> known{own_->line.line};
  for (proto::SlotIndex slot = 0; slot < self_.arena().spec().slots; ++slot) {
    if (const auto* line = self_.device_lines().of(slot)) known.insert(line->line.line);
  }
  const auto is_lost = [&](const auto& entry) { return !known.contains(entry.first); };
  if (std::ranges::none_of(lines_, is_lost)) return {};
  REGROUP_RETURN_IF_ERROR(stream_.wait("work before the memory of lost members is unmapped"));
  std::erase_if(lines_, is_lost);
  return {};
}

Result<DevicePointer> DevicePlane::buffer_of(proto::SlotIndex slot, std::uint32_t buffer) {
  REGROUP_ASSIGN_OR_RETURN(const Line* mapped, map(slot));
  const proto::DeviceLine& line = mapped->line;
  if (buffer >= line.leaf_buffers || line.leaf_bytes != bytes_)
    return base::internal_error(fmt::format(
        "the device line of slot {} has {} leaf buffers of {} bytes, expected buffer {} of {}",
        slot, line.leaf_buffers, line.leaf_bytes, buffer, bytes_));
  return mapped->memory.at(line.leaf_offset(buffer));
}

std::span<std::byte> DevicePlane::leaf(std::uint32_t buffer) const {
  return span_of(own_->memory.at(own_->line.leaf_offset(buffer)), bytes_);
}

std::atomic<std::uint64_t>& DevicePlane::seal_word(std::uint32_t buffer) const {
  return self_.own_slot().seals[buffer];
}

collective::cuda::Mark DevicePlane::mark_of(std::uint32_t buffer, proto::Seal seal) const {
  const std::string leaves =
      seal.leaves.size() == 1
          ? fmt::format("leaf {}", seal.leaves.begin)
          : fmt::format("the sum of leaves {} to {}", seal.leaves.begin, seal.leaves.end - 1);
  return {&seal_word(buffer), seal.pack(), fmt::format("{} of step {}", leaves, seal.step),
          base::SystemClock().now() + stream_.deadline()};
}

Status DevicePlane::seal(std::uint32_t buffer, proto::Seal seal) {
  return watcher_->store_when_done(mark_of(buffer, seal), stream_.stream());
}

void DevicePlane::withdraw(std::uint32_t buffer) { watcher_->withdraw(seal_word(buffer)); }

Status DevicePlane::add(std::uint32_t left, std::uint32_t right, proto::Seal seal) {
  const void* const inputs[] = {leaf(left).data(), leaf(right).data()};
  return watcher_->overwrite(mark_of(right, seal), stream_.stream(), [&] {
    return kernels_.sum(pair_,
                        {inputs, {}, leaf(right).data(), bytes_ / collective::size_of(dtype_)},
                        dtype_, collective::Op::kSum, stream_.stream());
  });
}

Status DevicePlane::clear(std::span<std::byte> leaf) {
  return stream_.check(driver_.set_bytes(reinterpret_cast<DevicePointer>(leaf.data()), 0,
                                         leaf.size(), stream_.stream()),
                       "cuMemsetD8Async");
}

Status DevicePlane::copy_to_arena(proto::SlotIndex slot, std::uint32_t buffer) {
  REGROUP_ASSIGN_OR_RETURN(const DevicePointer from, buffer_of(slot, buffer));
  return stream_.copy_to_host(self_.arena().buffer(slot, buffer).first(bytes_), from);
}

Status DevicePlane::copy_from_arena(std::uint32_t buffer) {
  const proto::SlotIndex slot = self_.slot_id().slot;
  REGROUP_ASSIGN_OR_RETURN(const DevicePointer to, buffer_of(slot, buffer));
  return stream_.copy_to_device(to, self_.arena().buffer(slot, buffer).first(bytes_));
}

bool DevicePlane::copies_for_all() {
  const ReceivedLines& lines = self_.device_lines();
  const auto& members = self_.world().members;
  const auto lowest = std::ranges::find_if(members, [&](const proto::WorldMember& member) {
    return member.slot_id.node == self_.slot_id().node && lines.of(member.slot_id.slot) != nullptr;
  });
  return lowest != members.end() && lowest->slot_id == self_.slot_id();
}

Status DevicePlane::answers() const {
  if (reducer_ && !reducer_->answers()) stream_.abandon();
  if (stream_.answers()) return {};
  return base::deadline_exceeded(fmt::format(
      "GPU {}: its work was not done in time{}", stream_.device_index(),
      reducer_ && !reducer_->failure().ok() ? ": " + reducer_->failure().message() : ""));
}

Status DevicePlane::enter() {
  REGROUP_RETURN_IF_ERROR(answers());
  reducer_.reset();
  REGROUP_RETURN_IF_ERROR(unmap_lost_lines());
  collective::cuda::DeviceReducerSpec spec;
  std::vector<std::string> gpus;
  bool all_here = true;
  for (const proto::WorldMember& member : self_.world().members) {
    if (member.slot_id.node != self_.slot_id().node) {
      all_here = false;
      continue;
    }
    if (member.slot_id == self_.slot_id()) spec.rank = static_cast<int>(spec.ranks.size());
    const proto::SlotIndex slot = member.slot_id.slot;
    REGROUP_ASSIGN_OR_RETURN(const Line* mapped, map(slot));
    const proto::DeviceLine& line = mapped->line;
    const auto gpu = std::ranges::find(gpus, line.gpu) - gpus.begin();
    if (static_cast<std::size_t>(gpu) == gpus.size()) gpus.push_back(line.gpu);
    spec.ranks.push_back({&self_.arena().member_slot(slot).sums,
                          mapped->memory.at(line.slice_offset()), line.slice_bytes,
                          static_cast<int>(gpu)});
  }
  spec.generation = self_.world().generation;
  spec.stream = sums_;
  spec.bell = &self_.own_slot().bell;
  spec.check = [this] { return self_.revoked() ? base::revoked("revoked") : Status(); };
  reduced_ = std::move(spec);
  if (all_here) make_reducer();
  return {};
}

void DevicePlane::make_reducer() {
  reducer_ = std::make_unique<collective::cuda::DeviceReducer>(driver_, kernels_, *watcher_,
                                                               *scratch_, reduced_);
}

void DevicePlane::disconnect_hosts() {
  if (!rails_) return;
  reducer_.reset();
  rails_.reset();
}

// Steps over rails follow the first one of the World, whose leaves may be of other owners.
Result<DevicePointer> DevicePlane::reserve_hosts(int rails, int rail, int host, int hosts) {
  collective::nccl::RailSums sums(kernels_, *rail_scratch_, rails, host, hosts, nullptr);
  const proto::World& world = self_.world();
  const auto owners = proto::owners_of(world, world.resume.step() + 2);
  sums.set_owners(collective::nccl::hosts_of_leaves(world, owners));
  REGROUP_RETURN_IF_ERROR(sums.reserve(bytes_, rail, dtype_));
  return rail_scratch_->bytes.reserve(static_cast<std::size_t>(hosts) + 1);
}

void DevicePlane::connect_hosts(int rails, int host, int hosts,
                                std::unique_ptr<collective::nccl::Comm> comm,
                                base::Duration error_limit) {
  rails_ = std::make_unique<collective::nccl::RailSums>(kernels_, *rail_scratch_, rails, host,
                                                        hosts, std::move(comm), error_limit);
  reduced_.hosts = rails_.get();
  make_reducer();
}

// Every rank has a copy of its own, since no rank may write into the line of another one.
Result<DevicePointer> DevicePlane::upload(const SealedSum& sum, std::size_t number) {
  if (number == uploads_.size()) {
    DevicePointer memory = 0;
    REGROUP_RETURN_IF_ERROR(
        stream_.check(driver_.memory_allocate(&memory, bytes_),
                      fmt::format("cuMemAlloc of {} bytes for a gradient", bytes_)));
    uploads_.push_back(memory);
  }
  REGROUP_RETURN_IF_ERROR(stream_.copy_to_device(
      uploads_[number], self_.arena().buffer(sum.slot, sum.buffer).first(bytes_)));
  return uploads_[number];
}

Status DevicePlane::reduce(std::span<const SealedSum> sums,
                           const std::vector<proto::SlotId>& owners, collective::Output result,
                           base::TimePoint deadline) {
  std::vector<collective::Partial> partials;
  std::size_t uploaded = 0;
  for (const SealedSum& sum : sums) {
    REGROUP_ASSIGN_OR_RETURN(const DevicePointer at, sum.on_device ? buffer_of(sum.slot, sum.buffer)
                                                                   : upload(sum, uploaded++));
    partials.push_back({sum.leaves, span_of(at, bytes_)});
  }
  if (rails_) rails_->set_owners(collective::nccl::hosts_of_leaves(self_.world(), owners));
  REGROUP_RETURN_IF_ERROR(reducer_->write_result_after(stream_.stream()));
  return reducer_->reduce(partials, self_.shards(), result, dtype_, deadline);
}

}  // namespace regroup::elastic
