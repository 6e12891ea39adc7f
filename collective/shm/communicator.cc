// The Communicator over an arena. Members on one host share results; callers with ordinary buffers are
// served through staging buffers in the arena.
//
// Why nobody overwrites a stage that a slow peer still reads: count time in rendezvous; "at time k" is
// between rendezvous k-1 and k. A stage k%2 is written at time k only and read at k+1 only; a stage result
// k%2 is written at k+1 only and read at k+2 only. So between a read and the next write, at k+2 and k+3,
// lies a rendezvous of all, whatever the operations are, and none is needed at the end of one. Time starts
// anew with each communicator, hence settle(): its members meet once before the first stage is written.
// Between generations the gate does the same.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "collective/shm/arrivals.h"
#include "collective/shm/factory.h"
#include "collective/shm/publish.h"
#include "collective/shm/tree_sum.h"

namespace regroup::collective {
namespace {

using core::kStageBytes;
using core::Status;
using core::TimePoint;

constexpr std::size_t kDirectBytes = 32 << 10;  // inputs of all ranks: below, each rank sums all by itself
constexpr std::size_t kStreamBytes = 1 << 20;   // results from here on do not stay in the cache anyway

class ShmCommunicator final : public Communicator {
 public:
  ShmCommunicator(const core::Arena& arena, const core::World& world, const ShmOptions& options,
                  std::vector<core::SlotIndex> slots, int rank, TreeSum ranks_sum)
      : arena_(arena),
        slots_(std::move(slots)),
        rank_(rank),
        ranks_sum_(std::move(ranks_sum)),
        arrivals_(arena, world.generation, options.channel, options.instance, slots_, rank) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(slots_.size()); }

  [[nodiscard]] Status allreduce(std::span<const std::byte> in, std::span<std::byte> out, Dtype dtype,
                                 TimePoint deadline) override;
  [[nodiscard]] Status broadcast(std::span<std::byte> data, int root, TimePoint deadline) override;
  [[nodiscard]] Status barrier(TimePoint deadline) override;
  [[nodiscard]] Status sum_partials(std::span<const Partial> partials, std::uint32_t leaves,
                                    std::span<std::byte> result, Dtype dtype, TimePoint deadline) override;

 private:
  [[nodiscard]] Status settle(const char* operation, TimePoint deadline);
  [[nodiscard]] Status allreduce_chunks(std::span<const std::byte> in, std::span<std::byte> out, Dtype dtype,
                                        TimePoint deadline);
  void sum_stages(std::uint64_t time, ByteRange range, std::byte* out, Dtype dtype) const;
  [[nodiscard]] std::byte* stage(int rank, std::uint64_t time) const {
    return arena_.stage(slots_[static_cast<std::size_t>(rank)], time).data();
  }

  const core::Arena& arena_;
  const std::vector<core::SlotIndex> slots_;  // by rank
  const int rank_;
  const TreeSum ranks_sum_;  // over one input of each rank
  Arrivals arrivals_;
  bool settled_ = false;
};

// The part of `data` in chunk `index`.
template <class T>
std::span<T> chunk_of(std::span<T> data, std::size_t index) {
  const std::size_t begin = index * kStageBytes;
  return data.subspan(begin, std::min(kStageBytes, data.size() - begin));
}

std::size_t chunks_of(std::size_t bytes) { return (bytes + kStageBytes - 1) / kStageBytes; }

Status check_whole_elements(const char* operation, std::size_t bytes, Dtype dtype) {
  if (bytes % size_of(dtype) == 0) return {};
  return core::invalid_argument(
      fmt::format("{}: {} bytes are not whole elements of {} bytes", operation, bytes, size_of(dtype)));
}

Status ShmCommunicator::settle(const char* operation, TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(arrivals_.check());
  if (settled_) return {};
  REGROUP_RETURN_IF_ERROR(arrivals_.gate(operation, deadline));
  REGROUP_RETURN_IF_ERROR(arrivals_.meet(operation, deadline));
  settled_ = true;
  return {};
}

Status ShmCommunicator::barrier(TimePoint deadline) { return arrivals_.meet("barrier", deadline); }

Status ShmCommunicator::broadcast(std::span<std::byte> data, int root, TimePoint deadline) {
  if (root < 0 || root >= size()) {
    return core::invalid_argument(fmt::format("broadcast: root {} of {} ranks", root, size()));
  }
  if (size() == 1 || data.empty()) return arrivals_.check();
  REGROUP_RETURN_IF_ERROR(settle("broadcast", deadline));
  for (std::size_t i = 0; i < chunks_of(data.size()); ++i) {
    const std::span<std::byte> chunk = chunk_of(data, i);
    const std::uint64_t time = arrivals_.met();
    if (rank_ == root) std::memcpy(stage(root, time), chunk.data(), chunk.size());
    REGROUP_RETURN_IF_ERROR(arrivals_.meet("broadcast", deadline));
    if (rank_ != root) std::memcpy(chunk.data(), stage(root, time), chunk.size());
  }
  return {};
}

Status ShmCommunicator::allreduce(std::span<const std::byte> in, std::span<std::byte> out, Dtype dtype,
                                  TimePoint deadline) {
  if (in.size() != out.size()) {
    return core::invalid_argument(fmt::format("allreduce: {} bytes in, {} out", in.size(), out.size()));
  }
  REGROUP_RETURN_IF_ERROR(check_whole_elements("allreduce", in.size(), dtype));
  if (size() == 1 && !in.empty()) std::memmove(out.data(), in.data(), in.size());
  if (size() == 1 || in.empty()) return arrivals_.check();
  REGROUP_RETURN_IF_ERROR(settle("allreduce", deadline));
  if (in.size() * slots_.size() > kDirectBytes) return allreduce_chunks(in, out, dtype, deadline);

  const std::uint64_t time = arrivals_.met();
  std::memcpy(stage(rank_, time), in.data(), in.size());
  REGROUP_RETURN_IF_ERROR(arrivals_.meet("allreduce", deadline));
  sum_stages(time, {0, in.size()}, out.data(), dtype);
  return {};
}

// A pipeline of three: at each time one chunk is copied in, the one before it summed, the one before that
// copied out.
Status ShmCommunicator::allreduce_chunks(std::span<const std::byte> in, std::span<std::byte> out, Dtype dtype,
                                         TimePoint deadline) {
  const std::size_t chunks = chunks_of(in.size());
  for (std::size_t i = 0;; ++i) {
    const std::uint64_t time = arrivals_.met();
    if (i < chunks) {
      const auto chunk = chunk_of(in, i);
      std::memcpy(stage(rank_, time), chunk.data(), chunk.size());
    }
    if (i >= 1 && i - 1 < chunks) {
      const ByteRange mine = slice_of(chunk_of(in, i - 1).size(), rank_, size());
      sum_stages(time - 1, mine, arena_.stage_result(time - 1).data() + mine.begin, dtype);
    }
    if (i >= 2) {
      const auto chunk = chunk_of(out, i - 2);
      std::memcpy(chunk.data(), arena_.stage_result(time - 2).data(), chunk.size());
    }
    if (i == chunks + 1) return {};
    REGROUP_RETURN_IF_ERROR(arrivals_.meet("allreduce", deadline));
  }
}

// Sums what all ranks staged at `time`.
void ShmCommunicator::sum_stages(std::uint64_t time, ByteRange range, std::byte* out, Dtype dtype) const {
  std::vector<const std::byte*> inputs(slots_.size());
  for (int i = 0; i < size(); ++i) inputs[static_cast<std::size_t>(i)] = stage(i, time);
  ranks_sum_.run(inputs, range, out, dtype, Stores::kPlain);
}

Status ShmCommunicator::sum_partials(std::span<const Partial> partials, std::uint32_t leaves,
                                     std::span<std::byte> result, Dtype dtype, TimePoint deadline) {
  std::vector<core::Interval> nodes;
  std::vector<const std::byte*> inputs;
  for (const Partial& partial : partials) {
    if (partial.data.size() != result.size()) {
      return core::invalid_argument(fmt::format("sum_partials: partial [{},{}) has {} bytes, the result {}",
                                                partial.leaves.begin, partial.leaves.end, partial.data.size(),
                                                result.size()));
    }
    nodes.push_back(partial.leaves);
    inputs.push_back(partial.data.data());
  }
  REGROUP_RETURN_IF_ERROR(check_whole_elements("sum_partials", result.size(), dtype));
  auto sum = TreeSum::compile(nodes, leaves);
  if (!sum.ok()) return sum.status();
  REGROUP_RETURN_IF_ERROR(arrivals_.gate("sum_partials", deadline));
  const ByteRange mine = slice_of(result.size(), rank_, size());
  sum->run(inputs, mine, result.data() + mine.begin, dtype,
           result.size() >= kStreamBytes ? Stores::kStream : Stores::kPlain);
  return arrivals_.meet("sum_partials", deadline);
}

// The ranks of `options`, or all, checked.
core::Result<std::vector<int>> ranks_of(const core::World& world, const ShmOptions& options) {
  std::vector<int> ranks = options.ranks;
  for (std::uint32_t i = 0; options.ranks.empty() && i < world.size(); ++i)
    ranks.push_back(static_cast<int>(i));
  const bool ascending = std::ranges::adjacent_find(ranks, std::greater_equal{}) == ranks.end();
  if (ranks.empty() || !ascending || ranks.front() < 0 || ranks.back() >= static_cast<int>(world.size())) {
    return core::invalid_argument(
        fmt::format("make_shm: the ranks must be ascending and of a World of {} members", world.size()));
  }
  return ranks;
}

}  // namespace

core::Result<std::unique_ptr<Communicator>> make_shm(const core::Arena& arena, const core::World& world,
                                                     core::Seat self, const ShmOptions& options) {
  auto ranks = ranks_of(world, options);
  if (!ranks.ok()) return ranks.status();
  std::vector<core::SlotIndex> slots;
  std::vector<core::Interval> leaves;
  int rank = -1;
  for (int r : *ranks) {
    const core::Seat seat = world.members[static_cast<std::size_t>(r)].seat;
    if (seat.node != self.node || seat.slot >= arena.spec().slots) {
      return core::invalid_argument(
          fmt::format("make_shm: rank {} is at node {} slot {}, not in the arena of "
                      "node {} with {} slots",
                      r, seat.node, seat.slot, self.node, arena.spec().slots));
    }
    const auto index = static_cast<std::uint32_t>(slots.size());
    if (seat == self) rank = static_cast<int>(index);
    slots.push_back(seat.slot);
    leaves.push_back({index, index + 1});
  }
  if (rank < 0) {
    return core::invalid_argument(
        fmt::format("make_shm: node {} slot {} is not among the {} members of generation {}", self.node,
                    self.slot, slots.size(), world.generation));
  }
  auto sum = TreeSum::compile(leaves, static_cast<std::uint32_t>(leaves.size()));
  if (!sum.ok()) return sum.status();
  return std::unique_ptr<Communicator>(std::make_unique<ShmCommunicator>(
      arena, world, options, std::move(slots), rank, std::move(sum).value()));
}

}  // namespace regroup::collective
