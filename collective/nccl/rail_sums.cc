// All work of a slice is on one stream, in this order: sums of this host's nodes -> parts of them
// to and from other hosts -> sum of this host's part over all nodes -> parts of the result to and
// from other hosts. So (H-1)/H of the nodes' and of the result's bytes leave and enter each host.
#include "collective/nccl/rail_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "collective/nccl/rails.h"
#include "collective/reduce/tree_fold.h"

namespace regroup::collective::nccl {
namespace {

using base::Status;
using cuda::DevicePointer;
using Direction = Transfer::Direction;

constexpr std::size_t kAlignment = 64;
constexpr std::chrono::milliseconds kPause(1);

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Of a partial sum of `bytes` bytes that a TreePlan makes.
std::size_t partial_bytes(std::size_t bytes, Dtype dtype) {
  return aligned(bytes / size_of(dtype) * cuda::TreePlan::partial_size(dtype));
}

// The plan of a sum of single leaves: no other one has more partial sums.
base::Result<cuda::TreePlan> plan_of_leaves(std::uint32_t leaves) {
  std::vector<proto::Interval> nodes;
  for (std::uint32_t leaf = 0; leaf < leaves; ++leaf) nodes.push_back({leaf, leaf + 1});
  return cuda::TreePlan::compile(nodes, leaves);
}

const void* pointer(DevicePointer at) { return reinterpret_cast<const void*>(at); }

}  // namespace

RailSums::Part RailSums::part_of(int host, const Slice& slice) const {
  const auto range = reduce::slice_of(slice.bytes, host, hosts_);
  return {range.begin, range.size()};
}

// In the order of the leaves.
base::Result<std::vector<RailSums::Held>> RailSums::place(const Slice& slice) {
  if (host_of_leaf_.size() != slice.leaves)
    return base::internal_error("sum of gradients: the owners of the leaves are not known");
  // Partial sums of 16-bit floats would be rounded.
  const bool single = size_of(slice.dtype) == 2;
  std::vector<Held> out;
  std::size_t wanted = 0;
  for (int host = 0; host < hosts_; ++host) {
    const std::size_t each = aligned(host == host_ ? slice.bytes : part_of(host_, slice).bytes);
    for (const proto::Interval node : nodes_on(host, host_of_leaf_, single)) {
      out.push_back({node, host, wanted});
      wanted += each;
    }
  }
  REGROUP_ASSIGN_OR_RETURN(const DevicePointer memory, scratch_.exchanged.reserve(wanted));
  for (Held& one : out) one.at += memory;
  std::ranges::sort(out, {}, &Held::leaves);
  return out;
}

base::Result<DevicePointer> RailSums::reserve_sums(const cuda::TreePlan& plan, std::size_t bytes,
                                                   Dtype dtype) {
  return scratch_.sums.reserve(partial_bytes(bytes, dtype) * plan.partial_count());
}

// Partial sums of ranks may be over any nodes of this host; those of hosts are known.
Status RailSums::reserve(std::size_t bytes, int rail, Dtype dtype) {
  const auto range = reduce::slice_of(bytes, rail, rails_);
  if (range.size() == 0) return {};
  const std::function<Status()> check = [] { return Status(); };
  const Slice slice{.partials = {},
                    .leaves = static_cast<std::uint32_t>(host_of_leaf_.size()),
                    .begin = range.begin,
                    .bytes = range.size(),
                    .dtype = dtype,
                    .check = check};
  REGROUP_ASSIGN_OR_RETURN(const auto held, place(slice));
  std::vector<proto::Interval> nodes;
  for (const Held& one : held) {
    nodes.push_back(one.leaves);
    if (one.host != host_) continue;
    REGROUP_ASSIGN_OR_RETURN(const auto plan, plan_of_leaves(one.leaves.size()));
    REGROUP_RETURN_IF_ERROR(reserve_sums(plan, slice.bytes, dtype).status());
  }
  REGROUP_ASSIGN_OR_RETURN(const auto plan, cuda::TreePlan::compile(nodes, slice.leaves));
  return reserve_sums(plan, part_of(host_, slice).bytes, dtype).status();
}

Status RailSums::launch(const std::vector<proto::Interval>& nodes, std::uint32_t leaves,
                        const std::vector<const void*>& inputs, DevicePointer to, std::size_t bytes,
                        const Slice& slice) {
  REGROUP_ASSIGN_OR_RETURN(const auto plan, cuda::TreePlan::compile(nodes, leaves));
  const std::size_t count = bytes / size_of(slice.dtype);
  const std::size_t each = partial_bytes(bytes, slice.dtype);
  REGROUP_ASSIGN_OR_RETURN(const DevicePointer scratch, reserve_sums(plan, bytes, slice.dtype));
  std::vector<void*> partials;
  for (std::size_t i = 0; i < plan.partial_count(); ++i)
    partials.push_back(reinterpret_cast<void*>(scratch + i * each));
  return kernels_.sum(plan, {inputs, partials, reinterpret_cast<void*>(to), count}, slice.dtype,
                      Op::kSum, slice.stream);
}

// The part of the tree below a node is the tree over its leaves: nodes begin at multiples of their
// size.
Status RailSums::sum_here(const Slice& slice, const Held& held) {
  std::vector<proto::Interval> nodes;
  std::vector<const void*> inputs;
  for (const Partial& partial : slice.partials) {
    if (partial.leaves.begin < held.leaves.begin || partial.leaves.end > held.leaves.end) continue;
    nodes.push_back(
        {partial.leaves.begin - held.leaves.begin, partial.leaves.end - held.leaves.begin});
    inputs.push_back(partial.data.data() + slice.begin);
  }
  return launch(nodes, held.leaves.size(), inputs, held.at, slice.bytes, slice);
}

// An error that NCCL has found is one of the generation's end if that comes soon.
Status RailSums::exchange(const Slice& slice, const std::vector<Transfer>& transfers) {
  const Status ran = comm_->run(transfers, slice.stream, slice.check, slice.deadline);
  if (ran.ok() || comm_->status().ok()) return ran;
  while (status().ok()) {
    REGROUP_RETURN_IF_ERROR(slice.check());
    std::this_thread::sleep_for(kPause);
  }
  return ran;
}

Status RailSums::send_parts(const Slice& slice, const std::vector<Held>& held) {
  std::vector<Transfer> transfers;
  const Part own = part_of(host_, slice);
  for (const Held& one : held) {
    if (one.host != host_) {
      if (own.bytes > 0) transfers.push_back({Direction::kReceive, one.host, one.at, own.bytes});
      continue;
    }
    for (int host = 0; host < hosts_; ++host) {
      const Part part = part_of(host, slice);
      if (host != host_ && part.bytes > 0)
        transfers.push_back({Direction::kSend, host, one.at + part.begin, part.bytes});
    }
  }
  return exchange(slice, transfers);
}

Status RailSums::sum_part(const Slice& slice, const std::vector<Held>& held) {
  const Part own = part_of(host_, slice);
  if (own.bytes == 0) return {};
  std::vector<proto::Interval> nodes;
  std::vector<const void*> inputs;
  for (const Held& one : held) {
    nodes.push_back(one.leaves);
    inputs.push_back(pointer(one.host == host_ ? one.at + own.begin : one.at));
  }
  return launch(nodes, slice.leaves, inputs, slice.to + own.begin, own.bytes, slice);
}

Status RailSums::send_result(const Slice& slice) {
  std::vector<Transfer> transfers;
  const Part own = part_of(host_, slice);
  for (int host = 0; host < hosts_; ++host) {
    const Part part = part_of(host, slice);
    if (host == host_) continue;
    if (own.bytes > 0)
      transfers.push_back({Direction::kSend, host, slice.to + own.begin, own.bytes});
    if (part.bytes > 0)
      transfers.push_back({Direction::kReceive, host, slice.to + part.begin, part.bytes});
  }
  return exchange(slice, transfers);
}

Status RailSums::sum(const Slice& slice) {
  if (slice.bytes == 0) return {};
  if (comm_ == nullptr)
    return base::internal_error("sum of gradients: a rank on no rail was asked for a slice");
  REGROUP_ASSIGN_OR_RETURN(const auto held, place(slice));
  for (const Held& one : held)
    if (one.host == host_) REGROUP_RETURN_IF_ERROR(sum_here(slice, one));
  REGROUP_RETURN_IF_ERROR(send_parts(slice, held));
  REGROUP_RETURN_IF_ERROR(sum_part(slice, held));
  return send_result(slice);
}

Status RailSums::status() {
  const Status failed = comm_ ? comm_->status() : Status();
  if (failed.ok()) return {};
  const base::TimePoint now = base::SystemClock().now();
  if (!failed_at_) failed_at_ = now;
  return now - *failed_at_ < error_limit_ ? Status() : failed;
}

}  // namespace regroup::collective::nccl
