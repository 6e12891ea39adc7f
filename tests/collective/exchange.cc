// Layout of the memory: guard | out, or both in place | guard, and guard | in | guard.
#include "tests/collective/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/status.h"

namespace regroup::collective::testing {
namespace {

constexpr std::size_t kGuard = 37;  // odd: the buffers have any alignment
constexpr std::byte kPaint{0xa5};
constexpr std::byte kSpoilt{0x42};

// Blocks in and out of a rank.
std::pair<std::size_t, std::size_t> blocks_of(const Shape& s, int rank, int size) {
  const auto all = static_cast<std::size_t>(size);
  const bool root = rank == s.root;
  switch (s.kind) {
    case Kind::kAllreduce:
      return {1, 1};
    case Kind::kReduce:
      return {1, root ? 1 : 0};
    case Kind::kReduceScatter:
      return {all, 1};
    case Kind::kAllgather:
      return {1, all};
    case Kind::kGather:
      return {1, root ? all : 0};
    case Kind::kScatter:
      return {root ? all : 0, 1};
    case Kind::kAlltoall:
      return {all, all};
    case Kind::kBroadcast:
      return {root ? 1 : 0, 1};
    default:
      return {0, 0};
  }
}

}  // namespace

std::string Shape::to_string() const {
  return fmt::format("{} of {} {} ({}, root {}{})", name_of(kind), elements, name_of(dtype),
                     name_of(op), root, in_place ? ", in place" : "");
}

Inputs make_inputs(const Shape& shape, int size, std::uint64_t seed) {
  auto inputs = std::make_shared<std::vector<Bytes>>();
  for (int r = 0; r < size; ++r) {
    inputs->push_back(make_leaf(shape.dtype, shape.elements * blocks_of(shape, r, size).first,
                                seed * 1000 + static_cast<std::uint64_t>(r), true));
  }
  return inputs;
}

Exchange::Exchange(const Shape& shape, int rank, int size, Inputs inputs, const Room& room)
    : shape_(shape), rank_(rank), inputs_(std::move(inputs)) {
  const std::size_t block = shape.elements * size_of(shape.dtype);
  const auto [ins, outs] = blocks_of(shape, rank, size);
  const bool together = (shape.in_place && outs > 0 && ins > 0) || shape.kind == Kind::kBroadcast;
  const std::size_t shift = together && ins != outs ? block * static_cast<std::size_t>(rank) : 0;
  const auto target = area(0, room.out, block * (together ? std::max(ins, outs) : outs));
  const auto source = together ? target : area(1, room.in, block * ins);
  const auto in = source.subspan(ins < outs ? shift : 0, block * ins);
  const Bytes& mine = (*inputs_)[static_cast<std::size_t>(rank)];
  if (!mine.empty()) std::memcpy(in.data(), mine.data(), mine.size());
  operation_ = {shape.kind, shape.dtype, shape.op, shape.root, {}, {}};
  if (shape.kind != Kind::kBroadcast) operation_.in = in;
  operation_.out = target.subspan(outs < ins ? shift : 0, block * outs);
}

// Makes the painted area `index`; what is inside its guards.
std::span<std::byte> Exchange::area(std::size_t index, std::span<std::byte> room,
                                    std::size_t bytes) {
  if (room.empty()) {
    own_[index].resize(bytes + 2 * kGuard);
    room = own_[index];
  }
  areas_[index] = room.first(bytes + 2 * kGuard);
  std::ranges::fill(areas_[index], kPaint);
  return areas_[index].subspan(kGuard, bytes);
}

std::string Exchange::verify() const {
  const Bytes want = reference_output(operation_, *inputs_, rank_);
  if (!std::ranges::equal(operation_.out, want)) return shape_.to_string() + ": wrong output";
  const auto painted = [](std::byte b) { return b == kPaint; };
  for (const auto& area : areas_) {
    if (area.empty()) continue;
    const bool intact = std::ranges::all_of(area.first(kGuard), painted) &&
                        std::ranges::all_of(area.last(kGuard), painted);
    if (!intact) return shape_.to_string() + ": memory beside the output was touched";
  }
  const Bytes& mine = (*inputs_)[static_cast<std::size_t>(rank_)];
  const bool apart = !areas_[1].empty();
  if (apart && !std::ranges::equal(operation_.in, mine))
    return shape_.to_string() + ": the input changed";
  return {};
}

void Exchange::spoil_input() { std::ranges::fill(areas_[1], kSpoilt); }
void Exchange::spoil_output() { std::ranges::fill(areas_[0], kSpoilt); }

base::Status run_checked(Communicator& communicator, const Shape& shape, std::uint64_t seed,
                         base::TimePoint deadline) {
  const Exchange exchange(shape, communicator.rank(), communicator.size(), seed);
  REGROUP_RETURN_IF_ERROR(communicator.run(exchange.operation(), deadline));
  const std::string wrong = exchange.verify();
  return wrong.empty() ? base::Status() : base::internal_error(wrong);
}

}  // namespace regroup::collective::testing
