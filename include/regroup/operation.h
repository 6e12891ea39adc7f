// An Operation describes what a Communicator runs: kind, memory, element type, reduction. Sizes are
// bytes; an operation counts elements only where it reduces.
//
//   std::vector<float> gradient(n);
//   const auto bytes = std::as_writable_bytes(std::span(gradient));
//   auto sum = Operation::allreduce(bytes, bytes, Dtype::kFloat32);       // in place
//   auto mean = Operation::allreduce(bytes, bytes, Dtype::kFloat32, Op::kAvg);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "regroup/status.h"

namespace regroup::collective {

// The type of an element that a reduction combines. Operations that only move bytes ignore it.
enum class Dtype : std::uint8_t {
  kFloat32,
  kFloat64,
  kInt32,
  kInt64,
  kFloat16,   // reduced in float32, rounded once at the end
  kBfloat16,  // likewise
  kInt8,
  kInt16,
  kUint8,
};
// How a reduction combines elements. Integer sums and products wrap; the average is their sum
// divided towards zero. Floats: NaN wins and is always the same quiet NaN, -0 < +0, denormals are
// kept. Bit operations are for integers.
enum class Op : std::uint8_t { kSum, kProd, kMin, kMax, kAvg, kBand, kBor };
// What an operation does; each is described at the function of Operation that makes it.
enum class Kind : std::uint8_t {
  kBarrier,
  kAllreduce,
  kReduce,
  kReduceScatter,
  kAllgather,
  kGather,
  kScatter,
  kAlltoall,
  kBroadcast,
  kSend,
  kReceive,
};

// Bytes of an element: 1, 2, 4 or 8. Any thread, as all functions of this header.
[[nodiscard]] std::size_t size_of(Dtype dtype);
// The name in lower case, for messages: "float32", "sum", "reduce_scatter". A static string.
[[nodiscard]] const char* name_of(Dtype dtype);
[[nodiscard]] const char* name_of(Op op);
[[nodiscard]] const char* name_of(Kind kind);

using Input = std::span<const std::byte>;
using Output = std::span<std::byte>;

// An operation and its memory. Plain data; the memory belongs to the caller, who must keep it until
// the operation is complete. With P ranks and blocks of n bytes, n being equal in all ranks; of any
// alignment. `in` and `out` must not overlap, unless in place as described below. Memory of
// different ranks must not overlap, with one exception: all ranks may name one result in the arena
// as `out` of an allreduce. Other ranks may still write the same bytes into it when the operation
// is complete here, so a rank that changes it by other means must synchronise with them first (a
// barrier).
struct Operation {
  Kind kind = Kind::kBarrier;
  Dtype dtype = Dtype::kUint8;
  Op op = Op::kSum;
  int root = 0;  // of kReduce, kGather, kScatter and kBroadcast; the peer of kSend and kReceive
  Input in;
  Output out;

  // Reduces element-wise over all ranks in the order of the canonical tree (leaf r is rank r's
  // input), so that every rank gets the same bits. n -> n; in place: out == in.
  [[nodiscard]] static Operation allreduce(Input in, Output out, Dtype dtype, Op op = Op::kSum);
  // Allreduce whose result only the root receives; ignores `out` of other ranks.
  [[nodiscard]] static Operation reduce(Input in, Output out, int root, Dtype dtype,
                                        Op op = Op::kSum);
  // Allreduce of which rank r receives only block r. P n -> n; in place: out == block r of in.
  [[nodiscard]] static Operation reduce_scatter(Input in, Output out, Dtype dtype,
                                                Op op = Op::kSum);
  // Concatenates the inputs of all ranks. n -> P n; in place: in == block r of out.
  [[nodiscard]] static Operation allgather(Input in, Output out);
  // Allgather whose result only the root receives; ignores `out` of other ranks.
  [[nodiscard]] static Operation gather(Input in, Output out, int root);
  // Sends block r of the root's input to rank r; ignores `in` of other ranks. P n -> n; in place at
  // the root: out == block r of in.
  [[nodiscard]] static Operation scatter(Input in, Output out, int root);
  // Block d of rank s becomes block s of rank d. P n -> P n; in place: out == in.
  [[nodiscard]] static Operation alltoall(Input in, Output out);
  // Copies the root's `data` to the `data` of all other ranks.
  [[nodiscard]] static Operation broadcast(Output data, int root);
  // Completes when all ranks have started it.
  [[nodiscard]] static Operation barrier();
  // A message between two ranks, which must give the same number of bytes. Sends and receives match
  // in the order of their start. A send is complete once its data was read, so that `data` may be
  // overwritten.
  [[nodiscard]] static Operation send(Input data, int to);
  // Receives: fills `data` with the next message of rank `from`.
  [[nodiscard]] static Operation receive(Output data, int from);

  // Bytes of a block: n above, for `size` ranks.
  [[nodiscard]] std::size_t block(int size) const;
  // Returns kInvalidArgument, with a message that names the fault, unless rank `rank` of `size` may
  // start the operation: the root or peer exists and, for a message, is another rank; sizes are as
  // above and whole elements; memory overlaps only in place. Communicator::start() calls it.
  [[nodiscard]] base::Status check(int rank, int size) const;
};

// For implementations of Communicator. True if the two spans have a byte in common.
[[nodiscard]] bool overlap(Input a, Input b);
// True if a contribution has a part for each rank: reduce_scatter, scatter, alltoall.
[[nodiscard]] bool is_split(Kind kind);
// True if only the root contributes: broadcast, scatter.
[[nodiscard]] bool from_root(Kind kind);
// The memory that a rank contributes: `in`, or `out` of a broadcast, which has only that.
[[nodiscard]] Input contribution_of(const Operation& operation);

}  // namespace regroup::collective

namespace regroup {

using collective::Dtype, collective::Kind, collective::Op, collective::Operation;

}  // namespace regroup
