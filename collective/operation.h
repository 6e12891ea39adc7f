// What a Communicator can be asked to do: an Operation says which memory, which elements, which reduction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/status.h"

namespace regroup::collective {

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
// Sums and products of integers wrap; the average is their sum divided towards zero. Of floats: NaN wins and
// is always the same quiet NaN, -0 < +0, denormals stay. Bit operations are for integers.
enum class Op : std::uint8_t { kSum, kProd, kMin, kMax, kAvg, kBand, kBor };
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
  kSumPartials,
};

[[nodiscard]] std::size_t size_of(Dtype dtype);
[[nodiscard]] const char* name_of(Dtype dtype);
[[nodiscard]] const char* name_of(Op op);
[[nodiscard]] const char* name_of(Kind kind);

using Input = std::span<const std::byte>;
using Output = std::span<std::byte>;

// What to do with which memory. Plain data; the memory is the caller's until the operation is done. With P
// ranks and blocks of n bytes, n being the same in all ranks; of any alignment. `in` and `out` do not
// overlap, or are in place as said below. Nor does memory of different ranks, but for one result in the arena
// that all ranks name as `out` of an allreduce: others may still write the same bytes into it when it is done
// here, so whoever changes it by other means than an operation meets them before.
struct Operation {
  Kind kind = Kind::kBarrier;
  Dtype dtype = Dtype::kUint8;
  Op op = Op::kSum;
  int root = 0;  // or peer
  Input in;
  Output out;

  // Element-wise over all ranks in the order of the canonical tree (leaf r is rank r's input), the same bits
  // in every rank. n -> n; in place: out == in.
  [[nodiscard]] static Operation allreduce(Input in, Output out, Dtype dtype, Op op = Op::kSum);
  // The same, for the root only; `out` of the others is ignored.
  [[nodiscard]] static Operation reduce(Input in, Output out, int root, Dtype dtype, Op op = Op::kSum);
  // Block r of the reduction, for rank r. P n -> n; in place: out == block r of in.
  [[nodiscard]] static Operation reduce_scatter(Input in, Output out, Dtype dtype, Op op = Op::kSum);
  // The inputs of all ranks, one after the other. n -> P n; in place: in == block r of out.
  [[nodiscard]] static Operation allgather(Input in, Output out);
  // The same, for the root only; `out` of the others is ignored.
  [[nodiscard]] static Operation gather(Input in, Output out, int root);
  // Block r of the root's input, for rank r; `in` of the others is ignored. P n -> n; in place at the root:
  // out == block r of in.
  [[nodiscard]] static Operation scatter(Input in, Output out, int root);
  // Block d of rank s becomes block s of rank d. P n -> P n; in place: out == in.
  [[nodiscard]] static Operation alltoall(Input in, Output out);
  // Copies `data` of the root into that of all others.
  [[nodiscard]] static Operation broadcast(Output data, int root);
  // Ends when all ranks have started it.
  [[nodiscard]] static Operation barrier();
  // Between two ranks; both name as many bytes. Matched in the order in which they were started. A send ends
  // when its data was taken.
  [[nodiscard]] static Operation send(Input data, int to);
  [[nodiscard]] static Operation receive(Output data, int from);

  // Bytes of a block.
  [[nodiscard]] std::size_t block(int size) const;
  // kInvalidArgument unless rank `rank` of `size` may start it.
  [[nodiscard]] core::Status check(int rank, int size) const;
};

[[nodiscard]] bool overlap(Input a, Input b);  // have a byte in common
[[nodiscard]] bool is_split(Kind kind);        // a contribution has a part for each rank
[[nodiscard]] bool from_root(Kind kind);       // only the root contributes
[[nodiscard]] Input contribution_of(const Operation& operation);

}  // namespace regroup::collective
