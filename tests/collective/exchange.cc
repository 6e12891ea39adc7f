// Layout of the memory: guard | in | guard | out | guard, or guard | both in place | guard.
#include "tests/collective/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace regroup::collective::testing {
namespace {

constexpr std::size_t kGuard = 37;  // odd: the buffers have any alignment
constexpr std::byte kPaint{0xa5};

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
  return fmt::format("{} of {} {} ({}, root {}{})", name_of(kind), elements, name_of(dtype), name_of(op),
                     root, in_place ? ", in place" : "");
}

Exchange::Exchange(const Shape& shape, int rank, int size, std::uint64_t seed) : shape_(shape), rank_(rank) {
  for (int r = 0; r < size; ++r) {
    inputs_.push_back(make_leaf(shape.dtype, shape.elements * blocks_of(shape, r, size).first,
                                seed * 1000 + static_cast<std::uint64_t>(r), true));
  }
  const std::size_t block = shape.elements * size_of(shape.dtype);
  const auto [ins, outs] = blocks_of(shape, rank, size);
  const bool together = (shape.in_place && outs > 0 && ins > 0) || shape.kind == Kind::kBroadcast;
  const std::size_t shift = block * static_cast<std::size_t>(rank);
  const std::size_t in = kGuard + (together && outs > ins ? shift : 0);
  std::size_t out = kGuard + (together && ins > outs ? shift : 0);
  if (!together) out += ins * block + kGuard;
  memory_.assign(std::max(in + ins * block, out + outs * block) + kGuard, kPaint);
  const Bytes& mine = inputs_[static_cast<std::size_t>(rank)];
  if (!mine.empty()) std::memcpy(memory_.data() + in, mine.data(), mine.size());
  operation_ = {shape.kind, shape.dtype, shape.op, shape.root, {}, {}};
  if (shape.kind != Kind::kBroadcast) operation_.in = std::span(memory_).subspan(in, ins * block);
  operation_.out = std::span(memory_).subspan(out, outs * block);
}

std::string Exchange::verify() const {
  const Bytes want = reference_output(operation_, inputs_, rank_);
  if (!std::ranges::equal(operation_.out, want)) return shape_.to_string() + ": wrong output";
  const auto painted = [](std::byte b) { return b == kPaint; };
  const bool before = std::all_of(memory_.begin(), memory_.begin() + kGuard, painted);
  const bool behind = std::all_of(memory_.end() - kGuard, memory_.end(), painted);
  if (!before || !behind) return shape_.to_string() + ": memory beside the output was touched";
  const Bytes& mine = inputs_[static_cast<std::size_t>(rank_)];
  const bool apart = !shape_.in_place && shape_.kind != Kind::kBroadcast;
  if (apart && !std::ranges::equal(operation_.in, mine)) return shape_.to_string() + ": the input changed";
  return {};
}

core::Status run_checked(Communicator& communicator, const Shape& shape, std::uint64_t seed,
                         core::TimePoint deadline) {
  const Exchange exchange(shape, communicator.rank(), communicator.size(), seed);
  REGROUP_RETURN_IF_ERROR(communicator.run(exchange.operation(), deadline));
  const std::string wrong = exchange.verify();
  return wrong.empty() ? core::Status() : core::internal_error(wrong);
}

}  // namespace regroup::collective::testing
