// Which partial sums meet when: lists of nodes of the canonical tree and how two of them become one. Pure;
// the bits of a result do not depend on the order in which lists meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collective/shm/tree_fold.h"
#include "core/status.h"
#include "core/world.h"

namespace regroup::collective {

using Nodes = std::vector<core::Interval>;  // disjoint nodes of one canonical tree, ascending

// As a host has told them, whatever they are.
[[nodiscard]] Nodes nodes_in(std::span<const std::byte> bytes);

// The largest nodes that can be had from these. kInvalidArgument if they are not disjoint nodes of the tree
// over `leaves` leaves.
[[nodiscard]] core::Result<Nodes> largest_nodes(Nodes parts, std::uint32_t leaves);

// How the nodes of several lists, numbered one list after the other, become the largest ones.
struct Merge {
  struct Output {
    std::vector<std::uint32_t> inputs;  // that make it up, from left to right
    std::optional<TreeFold> fold;       // nothing: it is its only input
  };
  Nodes nodes;
  std::vector<Output> outputs;  // one for each of `nodes`
};
// With `whole`, a single input is folded too: the fold finishes it (average, one NaN).
[[nodiscard]] core::Result<Merge> plan_merge(std::span<const Nodes> lists, std::uint32_t leaves,
                                             bool whole = false);

// What host `host` does with the nodes that each host holds, so that each element is summed at one of them:
// recursive halving among the first `base` hosts, a power of two; the others hand theirs over.
struct Halving {
  struct Step {
    std::size_t partner;
    bool keeps_low;    // half of the elements at hand
    std::size_t gets;  // nodes of the partner
    Merge merge;       // of ours and the partner's; not of the last step
  };
  std::size_t base = 1;
  std::vector<Step> steps;               // distances 1, 2, 4 ...; none beyond the base
  std::vector<std::size_t> extra_nodes;  // by host from `base` on: nodes it hands over
  Merge last;                            // of ours, the last partner's and the extra ones: the whole sum
};
// kInvalidArgument unless the nodes of all hosts are disjoint and cover the leaves.
[[nodiscard]] core::Result<Halving> plan_halving(std::size_t host, std::span<const Nodes> by_host,
                                                 std::uint32_t leaves);

}  // namespace regroup::collective
