// The canonical summation tree over the leaves 0..V-1: sum(a,b) = sum(a,m) + sum(m,b) with m = a +
// the largest power of two below b-a. It depends on V only, so the bits of a sum do not depend on
// which member computed which leaf.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "proto/world.h"

namespace regroup::proto {

// The m at which the tree node `node`, of at least two leaves, splits.
[[nodiscard]] constexpr std::uint32_t canonical_split(Interval node) {
  return node.begin + std::bit_floor(node.size() - 1);
}

// True if `interval` is a node of the tree over `leaves` leaves.
[[nodiscard]] bool is_canonical_node(std::uint32_t leaves, Interval interval);

// The parent of `node`; empty for the root and for an interval that is not a node.
[[nodiscard]] std::optional<Interval> canonical_parent(std::uint32_t leaves, Interval node);

// The fewest nodes that cover exactly `interval`, left to right.
[[nodiscard]] std::vector<Interval> canonical_cover(std::uint32_t leaves, Interval interval);

// Gradient buffers that a member with a contiguous range needs: max(2, 2 ceil(log2 V) - 1).
[[nodiscard]] constexpr std::uint32_t canonical_buffers(std::uint32_t leaves) {
  const std::uint32_t log2 =
      leaves <= 1 ? 0 : static_cast<std::uint32_t>(std::bit_width(leaves - 1));
  return log2 <= 1 ? 2 : 2 * log2 - 1;
}

}  // namespace regroup::proto
