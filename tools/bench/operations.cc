// The table of operations, and the call and expected result of each rank.
#include "tools/bench/operations.h"

#include <algorithm>
#include <array>

namespace regroup::bench {
namespace {

using collective::Kind;
using collective::Operation;
using collective::Output;

double one(double) { return 1; }
double ring(double p) { return (p - 1) / p; }
double two_rings(double p) { return 2 * (p - 1) / p; }
double none(double) { return 0; }
double all_and_one(double p) { return p + 1; }  // every rank's memory once, one shared once
double two(double) { return 2; }
double all(double p) { return p; }
double all_twice(double p) { return 2 * p; }

constexpr std::array<OperationSpec, 10> kOperations{{
    {.name = "allreduce",
     .kind = Kind::kAllreduce,
     .reduces = true,
     .bus = two_rings,
     .traffic = all_and_one},
    {.name = "reduce_scatter",
     .kind = Kind::kReduceScatter,
     .in_blocks = true,
     .reduces = true,
     .bus = ring,
     .traffic = all_and_one},
    {.name = "allgather",
     .kind = Kind::kAllgather,
     .out_blocks = true,
     .bus = ring,
     .traffic = all_and_one},
    {.name = "broadcast",
     .kind = Kind::kBroadcast,
     .rooted = true,
     .out_of_place = false,
     .bus = one,
     .traffic = all},
    {.name = "reduce",
     .kind = Kind::kReduce,
     .reduces = true,
     .rooted = true,
     .bus = one,
     .traffic = all_and_one},
    {.name = "alltoall",
     .kind = Kind::kAlltoall,
     .in_blocks = true,
     .out_blocks = true,
     .bus = ring,
     .traffic = all_twice},
    {.name = "gather",
     .kind = Kind::kGather,
     .out_blocks = true,
     .rooted = true,
     .bus = ring,
     .traffic = two},
    {.name = "scatter",
     .kind = Kind::kScatter,
     .in_blocks = true,
     .rooted = true,
     .bus = ring,
     .traffic = two},
    {.name = "sendrecv", .kind = Kind::kSend, .in_place = false, .bus = one, .traffic = all_twice},
    {.name = "barrier", .kind = Kind::kBarrier, .out_of_place = false, .bus = one, .traffic = none},
}};

}  // namespace

std::span<const OperationSpec> operations() { return kOperations; }

const OperationSpec* find_operation(std::string_view name) {
  const auto found = std::ranges::find(kOperations, name, &OperationSpec::name);
  return found == kOperations.end() ? nullptr : &*found;
}

bool can_reduce(collective::Op op, collective::Dtype dtype) {
  using collective::Dtype;
  const bool bits = op == collective::Op::kBand || op == collective::Op::kBor;
  return !bits || (dtype != Dtype::kFloat32 && dtype != Dtype::kFloat64 &&
                   dtype != Dtype::kFloat16 && dtype != Dtype::kBfloat16);
}

std::size_t OperationSpec::block(std::size_t size, int ranks, collective::Dtype dtype) const {
  if (kind == Kind::kBarrier) return 0;
  const std::size_t element = collective::size_of(dtype);
  const std::size_t parts = in_all_blocks() ? static_cast<std::size_t>(ranks) : 1;
  return std::max<std::size_t>(1, size / parts / element) * element;
}

std::size_t OperationSpec::size(std::size_t block, int ranks) const {
  return in_all_blocks() ? block * static_cast<std::size_t>(ranks) : block;
}

Call make_call(const Case& c, int rank, int ranks, Output first, Output second) {
  const std::size_t n = c.block;
  const std::size_t at = n * static_cast<std::size_t>(rank);
  const auto p = static_cast<std::size_t>(ranks);
  const bool root = rank == c.root;
  Output in = first.first(c.spec->in_blocks ? n * p : n);
  Output out = (c.in_place ? first : second).first(c.spec->out_blocks ? n * p : n);
  switch (c.spec->kind) {
    case Kind::kAllreduce:
      return {Operation::allreduce(in, out, c.dtype, c.op), {}, in, out};
    case Kind::kReduce:
      return {Operation::reduce(in, out, c.root, c.dtype, c.op), {}, in, root ? out : Output()};
    case Kind::kReduceScatter:
      if (c.in_place) out = in.subspan(at, n);
      return {Operation::reduce_scatter(in, out, c.dtype, c.op), {}, in, out};
    case Kind::kAllgather:
      if (c.in_place) in = out.subspan(at, n);
      return {Operation::allgather(in, out), {}, in, out};
    case Kind::kGather:
      if (c.in_place && root) in = out.subspan(at, n);
      return {Operation::gather(in, out, c.root), {}, in, root ? out : Output()};
    case Kind::kScatter:
      if (c.in_place && root) out = in.subspan(at, n);
      return {Operation::scatter(in, out, c.root), {}, root ? in : Output(), out};
    case Kind::kAlltoall:
      return {Operation::alltoall(in, out), {}, in, out};
    case Kind::kBroadcast:
      return {Operation::broadcast(in, c.root), {}, root ? in : Output(), in};
    case Kind::kSend:
      return {Operation::send(in, (rank + 1) % ranks),
              Operation::receive(out, (rank + ranks - 1) % ranks), in, out};
    default:
      return {Operation::barrier(), {}, {}, {}};
  }
}

std::vector<Part> expected_parts(const Case& c, int rank, int ranks) {
  const std::size_t n = c.block / collective::size_of(c.dtype);
  const std::size_t mine = n * static_cast<std::size_t>(rank);
  std::vector<Part> parts;
  const auto of_each = [&](std::size_t index) {
    for (int r = 0; r < ranks; ++r) parts.push_back({n * static_cast<std::size_t>(r), n, r, index});
    return parts;
  };
  switch (c.spec->kind) {
    case Kind::kReduce:
      if (rank != c.root) return {};
      [[fallthrough]];
    case Kind::kAllreduce:
      return {{0, n, Part::kAllRanks, 0}};
    case Kind::kReduceScatter:
      return {{0, n, Part::kAllRanks, mine}};
    case Kind::kGather:
      if (rank != c.root) return {};
      [[fallthrough]];
    case Kind::kAllgather:
      return of_each(0);
    case Kind::kAlltoall:
      return of_each(mine);
    case Kind::kScatter:
      return {{0, n, c.root, mine}};
    case Kind::kBroadcast:
      return {{0, n, c.root, 0}};
    case Kind::kSend:
      return {{0, n, (rank + ranks - 1) % ranks, 0}};
    default:
      return {};
  }
}

}  // namespace regroup::bench
