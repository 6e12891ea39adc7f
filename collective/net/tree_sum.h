// Sums canonical partials over several hosts: each host holds some nodes of one canonical tree, and
// all hosts receive the sum. Resumes a sum that a revoke interrupted. docs/design/ucx.md, Resuming.
#pragma once

#include <cstdint>

#include "collective/net/exchange.h"
#include "collective/sum_blocks.h"

namespace regroup::collective::net {

// The arguments of tree_sum() on this host.
struct TreeSum {
  std::uint32_t leaves;
  Output result;  // shared by the ranks of this host
  Arithmetic arithmetic;
  const SumBlocks& blocks;
  proto::Generation generation;  // the current one, in which blocks are marked
  Merge here;                    // merges the partials of this host
  PartialSums inputs;            // the partials of this host
};

// Runs this rank's part. The caller keeps `of` and the exchange until the task has ended. Call it
// only when every member of an earlier generation on this host has left that generation.
[[nodiscard]] Task tree_sum(Exchange& x, const TreeSum& of);

}  // namespace regroup::collective::net
