// Computes expected results from the definitions, element by element. Shares no code with the
// kernels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/world.h"
#include "regroup/operation.h"

namespace regroup::collective::testing {

using Bytes = std::vector<std::byte>;

// Makes reproducible elements whose reductions depend on the order: floats of mixed magnitudes and
// signs, integers that use all bits. If `odd`, every 16th float is NaN, infinity, a denormal or -0.
[[nodiscard]] Bytes make_leaf(Dtype dtype, std::size_t elements, std::uint64_t seed,
                              bool odd = false);

// The reduction of leaves[interval] over the canonical tree; an average divides by the number of
// leaves.
[[nodiscard]] Bytes reference_fold(Dtype dtype, Op op, std::span<const Bytes> leaves,
                                   proto::Interval interval);
[[nodiscard]] inline Bytes reference_sum(Dtype dtype, std::span<const Bytes> leaves,
                                         proto::Interval interval) {
  return reference_fold(dtype, Op::kSum, leaves, interval);
}

// The output that `rank` must find, given the inputs of all ranks; empty if it gets none.
[[nodiscard]] Bytes reference_output(const Operation& operation, std::span<const Bytes> inputs,
                                     int rank);

[[nodiscard]] float value_of_half(std::uint16_t half);
[[nodiscard]] std::uint16_t half_of(float value);  // to nearest even
[[nodiscard]] std::uint16_t bfloat_of(float value);

inline constexpr Dtype kDtypes[] = {Dtype::kFloat32, Dtype::kFloat64, Dtype::kInt32,
                                    Dtype::kInt64,   Dtype::kFloat16, Dtype::kBfloat16,
                                    Dtype::kInt8,    Dtype::kInt16,   Dtype::kUint8};
inline constexpr Op kOperators[] = {Op::kSum, Op::kProd, Op::kMin, Op::kMax,
                                    Op::kAvg, Op::kBand, Op::kBor};

[[nodiscard]] constexpr bool is_floating(Dtype dtype) {
  return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat64 || dtype == Dtype::kFloat16 ||
         dtype == Dtype::kBfloat16;
}
[[nodiscard]] constexpr bool is_defined(Dtype dtype, Op op) {
  return !is_floating(dtype) || (op != Op::kBand && op != Op::kBor);
}

}  // namespace regroup::collective::testing
