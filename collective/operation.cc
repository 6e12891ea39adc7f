// Names and sizes of Kind, Dtype and Op, and the check of an operation's arguments.
#include "regroup/operation.h"
#include "base/status.h"

#include <fmt/format.h>

namespace regroup::collective {
namespace {

using base::Status;

struct Sizes {
  std::size_t in = 0;
  std::size_t out = 0;
};

// The sizes of input and output that `rank` must pass; a side that it does not use is ignored.
Sizes used(const Operation& o, int rank) {
  const bool root = rank == o.root;
  switch (o.kind) {
    case Kind::kReduce:
    case Kind::kGather:
      return {o.in.size(), root ? o.out.size() : 0};
    case Kind::kScatter:
      return {root ? o.in.size() : 0, o.out.size()};
    case Kind::kBroadcast:
      return {0, o.out.size()};
    default:
      return {o.in.size(), o.out.size()};
  }
}

Sizes wanted(const Operation& o, int rank, int size) {
  const std::size_t n = o.block(size);
  const std::size_t all = n * static_cast<std::size_t>(size);
  const bool root = rank == o.root;
  switch (o.kind) {
    case Kind::kBarrier:
      return {0, 0};
    case Kind::kAllreduce:
      return {n, n};
    case Kind::kReduce:
      return {n, root ? n : 0};
    case Kind::kReduceScatter:
      return {all, n};
    case Kind::kAllgather:
      return {n, all};
    case Kind::kGather:
      return {n, root ? all : 0};
    case Kind::kScatter:
      return {root ? all : 0, n};
    case Kind::kAlltoall:
      return {all, all};
    case Kind::kBroadcast:
    case Kind::kReceive:
      return {0, n};
    case Kind::kSend:
      return {n, 0};
  }
  return {};
}

bool in_place(const Operation& o, int rank, int size) {
  const std::size_t shift = o.block(size) * static_cast<std::size_t>(rank);
  switch (o.kind) {
    case Kind::kAllreduce:
    case Kind::kReduce:
    case Kind::kAlltoall:
      return o.in.data() == o.out.data();
    case Kind::kReduceScatter:
    case Kind::kScatter:
      return o.in.data() + shift == o.out.data();
    case Kind::kAllgather:
    case Kind::kGather:
      return o.in.data() == o.out.data() + shift;
    default:
      return true;
  }
}

bool reduces(Kind kind) {
  return kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
}

bool has_root(Kind kind) {
  return kind == Kind::kReduce || kind == Kind::kGather || kind == Kind::kScatter ||
         kind == Kind::kBroadcast;
}

bool is_float(Dtype dtype) {
  return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat64 || dtype == Dtype::kFloat16 ||
         dtype == Dtype::kBfloat16;
}

Status check_reduction(const Operation& o) {
  if (o.in.size() % size_of(o.dtype) != 0 || o.out.size() % size_of(o.dtype) != 0) {
    return base::invalid_argument(fmt::format("{}: {} bytes are not whole elements of {} bytes",
                                              name_of(o.kind), o.in.size(), size_of(o.dtype)));
  }
  if ((o.op == Op::kBand || o.op == Op::kBor) && is_float(o.dtype)) {
    return base::invalid_argument(fmt::format("{}: {} of {}: bit operations are for integers",
                                              name_of(o.kind), name_of(o.op), name_of(o.dtype)));
  }
  return {};
}

}  // namespace

std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
    case Dtype::kInt64:
      return 8;
    case Dtype::kFloat32:
    case Dtype::kInt32:
      return 4;
    case Dtype::kFloat16:
    case Dtype::kBfloat16:
    case Dtype::kInt16:
      return 2;
    case Dtype::kInt8:
    case Dtype::kUint8:
      return 1;
  }
  return 1;
}

const char* name_of(Dtype dtype) {
  constexpr const char* kNames[] = {"float32",  "float64", "int32", "int64", "float16",
                                    "bfloat16", "int8",    "int16", "uint8"};
  return kNames[static_cast<std::size_t>(dtype)];
}

const char* name_of(Op op) {
  constexpr const char* kNames[] = {"sum", "prod", "min", "max", "avg", "band", "bor"};
  return kNames[static_cast<std::size_t>(op)];
}

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"barrier",   "allreduce", "reduce",  "reduce_scatter",
                                    "allgather", "gather",    "scatter", "alltoall",
                                    "broadcast", "send",      "receive"};
  return kNames[static_cast<std::size_t>(kind)];
}

Operation Operation::allreduce(Input in, Output out, Dtype dtype, Op op) {
  return {Kind::kAllreduce, dtype, op, 0, in, out};
}
Operation Operation::reduce(Input in, Output out, int root, Dtype dtype, Op op) {
  return {Kind::kReduce, dtype, op, root, in, out};
}
Operation Operation::reduce_scatter(Input in, Output out, Dtype dtype, Op op) {
  return {Kind::kReduceScatter, dtype, op, 0, in, out};
}
Operation Operation::allgather(Input in, Output out) {
  return {.kind = Kind::kAllgather, .in = in, .out = out};
}
Operation Operation::gather(Input in, Output out, int root) {
  return {.kind = Kind::kGather, .root = root, .in = in, .out = out};
}
Operation Operation::scatter(Input in, Output out, int root) {
  return {.kind = Kind::kScatter, .root = root, .in = in, .out = out};
}
Operation Operation::alltoall(Input in, Output out) {
  return {.kind = Kind::kAlltoall, .in = in, .out = out};
}
Operation Operation::broadcast(Output data, int root) {
  return {.kind = Kind::kBroadcast, .root = root, .in = {}, .out = data};
}
Operation Operation::barrier() { return {}; }
Operation Operation::send(Input data, int to) {
  return {.kind = Kind::kSend, .root = to, .in = data, .out = {}};
}
Operation Operation::receive(Output data, int from) {
  return {.kind = Kind::kReceive, .root = from, .in = {}, .out = data};
}

std::size_t Operation::block(int size) const {
  switch (kind) {
    case Kind::kScatter:
    case Kind::kReduceScatter:
    case Kind::kBroadcast:
    case Kind::kReceive:
      return out.size();
    case Kind::kAlltoall:
      return in.size() / static_cast<std::size_t>(size);
    default:
      return in.size();
  }
}

Status Operation::check(int rank, int size) const {
  const bool message = kind == Kind::kSend || kind == Kind::kReceive;
  if ((has_root(kind) || message) && (root < 0 || root >= size)) {
    return base::invalid_argument(
        fmt::format("{}: {} {} of {} ranks", name_of(kind), message ? "peer" : "root", root, size));
  }
  if (message && root == rank) {
    return base::invalid_argument(fmt::format("{}: rank {} to itself", name_of(kind), rank));
  }
  const Sizes have = used(*this, rank);
  const Sizes want = wanted(*this, rank, size);
  if (have.in != want.in || have.out != want.out) {
    return base::invalid_argument(
        fmt::format("{}: got {} bytes of input and {} of output, expected {} and {} for {} ranks",
                    name_of(kind), have.in, have.out, want.in, want.out, size));
  }
  if (reduces(kind)) REGROUP_RETURN_IF_ERROR(check_reduction(*this));
  if (overlap(in.first(have.in), out.first(have.out)) && !in_place(*this, rank, size)) {
    return base::invalid_argument(
        fmt::format("{}: the input and the output overlap without being in place", name_of(kind)));
  }
  return {};
}

bool overlap(Input a, Input b) {
  const auto at = [](Input s) { return reinterpret_cast<std::uintptr_t>(s.data()); };
  return !a.empty() && !b.empty() && at(a) < at(b) + b.size() && at(b) < at(a) + a.size();
}

bool is_split(Kind kind) {
  return kind == Kind::kReduceScatter || kind == Kind::kScatter || kind == Kind::kAlltoall;
}

bool from_root(Kind kind) { return kind == Kind::kBroadcast || kind == Kind::kScatter; }

Input contribution_of(const Operation& o) {
  return o.kind == Kind::kBroadcast ? Input(o.out) : o.in;
}

}  // namespace regroup::collective
