// Covers of leaves by canonical nodes, and the nodes' sums.
#pragma once

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "tests/collective/harness.h"
#include "tests/collective/reference.h"

namespace regroup::collective::testing {

// Like random_cover(), but only single leaves for 16-bit floats: their partial sums would be
// rounded.
[[nodiscard]] inline std::vector<proto::Interval> random_cover_of(Dtype dtype, std::uint32_t leaves,
                                                                  std::mt19937_64& random) {
  if (dtype != Dtype::kFloat16 && dtype != Dtype::kBfloat16) return random_cover(leaves, random);
  std::vector<proto::Interval> nodes;
  for (std::uint32_t leaf = 0; leaf < leaves; ++leaf) nodes.push_back({leaf, leaf + 1});
  std::ranges::shuffle(nodes, random);
  return nodes;
}

struct Sealed {
  proto::Interval leaves;
  Bytes sum;
};
[[nodiscard]] inline std::vector<Sealed> seal(Dtype dtype, std::span<const Bytes> leaves,
                                              std::mt19937_64& random) {
  std::vector<Sealed> out;
  for (const proto::Interval node :
       random_cover_of(dtype, static_cast<std::uint32_t>(leaves.size()), random))
    out.push_back({node, reference_sum(dtype, leaves, node)});
  return out;
}

}  // namespace regroup::collective::testing
