// Lists of tree nodes of the canonical tree, and how the lists of several hosts merge: a host holds
// the partial sums of the nodes in its list. The bits of a result do not depend on the order in
// which lists merge. Pure functions, any thread.
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

using TreeNodes = std::vector<proto::Interval>;  // disjoint nodes of one canonical tree, ascending

// Decodes the nodes that another host has sent, without checking them.
[[nodiscard]] TreeNodes tree_nodes_in(std::span<const std::byte> bytes);

// Joins `parts` into the fewest, largest nodes. kInvalidArgument if `parts` are not disjoint nodes
// of the tree over `leaves` leaves.
[[nodiscard]] base::Result<TreeNodes> largest_tree_nodes(TreeNodes parts, std::uint32_t leaves);

// How the nodes of several lists merge into the largest nodes. Inputs are numbered through all
// lists, one list after the other.
struct Merge {
  struct Output {
    std::vector<std::uint32_t> inputs;     // the nodes that form the output, from left to right
    std::optional<reduce::TreeFold> fold;  // empty: the output equals its only input
  };
  TreeNodes tree_nodes;
  std::vector<Output> outputs;  // one for each of `tree_nodes`
};
// Plans the merge of `lists`. With `whole`, even a single input gets a fold, since the fold applies
// the final step (division of an average, one NaN).
[[nodiscard]] base::Result<Merge> plan_merge(std::span<const TreeNodes> lists, std::uint32_t leaves,
                                             bool whole = false);

// The steps of one host in a reduction: recursive halving among the first `base` hosts, a power of
// two; the other hosts send their partial sums to the hosts that complete the elements.
struct Halving {
  struct Step {
    std::size_t partner;
    bool keeps_low;    // keeps the low half of its elements
    std::size_t gets;  // number of nodes that the partner sends
    Merge merge;       // merges our nodes and the partner's; unused in the last step
  };
  std::size_t base = 1;
  std::vector<Step> steps;  // at distances 1, 2, 4 ...; empty for a host beyond the base
  std::vector<std::size_t> extra_tree_nodes;  // [i]: number of nodes that host `base` + i sends
  Merge last;  // merges our nodes, the last partner's and the extra ones into the whole sum
};
// Plans the steps of host `host`; by_host[h] has the nodes that host h holds. kInvalidArgument
// unless the nodes of all hosts are disjoint and cover the leaves.
[[nodiscard]] base::Result<Halving> plan_halving(std::size_t host,
                                                 std::span<const TreeNodes> by_host,
                                                 std::uint32_t leaves);

}  // namespace regroup::collective::net
