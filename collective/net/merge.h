// Lists of nodes of the canonical tree, whose partial sums hosts hold, and how lists merge. Pure
// functions, any thread. The bits of a result do not depend on the order in which lists merge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "collective/reduce/tree_fold.h"
#include "proto/world.h"

namespace regroup::collective::net {

using Nodes = std::vector<proto::Interval>;  // disjoint nodes of one canonical tree, ascending

// Decodes the nodes that another host has sent. They are not checked.
[[nodiscard]] Nodes nodes_in(std::span<const std::byte> bytes);

// The largest nodes that these parts make up. kInvalidArgument if they are not disjoint nodes of
// the tree over `leaves` leaves.
[[nodiscard]] base::Result<Nodes> largest_nodes(Nodes parts, std::uint32_t leaves);

// How the nodes of several lists, numbered one list after the other, merge into the largest nodes.
struct Merge {
  struct Output {
    std::vector<std::uint32_t> inputs;     // the nodes that make it up, from left to right
    std::optional<reduce::TreeFold> fold;  // none: the node is its only input
  };
  Nodes nodes;
  std::vector<Output> outputs;  // one for each of `nodes`
};
// With `whole`, a single input is folded too, because the fold applies the final step (average, one
// NaN).
[[nodiscard]] base::Result<Merge> plan_merge(std::span<const Nodes> lists, std::uint32_t leaves,
                                             bool whole = false);

// The steps of host `host` in a reduction, given the nodes that each host holds: recursive halving
// among the first `base` hosts, a power of two; the other hosts send theirs to the owners of the
// elements.
struct Halving {
  struct Step {
    std::size_t partner;
    bool keeps_low;    // keeps the low half of its elements
    std::size_t gets;  // number of nodes of the partner
    Merge merge;       // of our nodes and the partner's; unused in the last step
  };
  std::size_t base = 1;
  std::vector<Step> steps;               // distances 1, 2, 4 ...; none beyond the base
  std::vector<std::size_t> extra_nodes;  // by host from `base` on: number of nodes that it sends
  Merge last;  // of our nodes, the last partner's and the extra ones: the whole sum
};
// kInvalidArgument unless the nodes of all hosts are disjoint and cover the leaves.
[[nodiscard]] base::Result<Halving> plan_halving(std::size_t host, std::span<const Nodes> by_host,
                                                 std::uint32_t leaves);

}  // namespace regroup::collective::net
