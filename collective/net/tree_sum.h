// Sums canonical partials over several hosts: each host holds some nodes of one canonical tree, and
// all hosts get the sum. A sum that a loss cut short is resumed. docs/design/ucx.md, Resuming.
#pragma once

#include <cstdint>

#include "collective/net/exchange.h"
#include "collective/sum_blocks.h"

namespace regroup::collective::net {

// The sum, as this host sees it.
struct TreeSum {
  std::uint32_t leaves;
  Output result;  // shared by the ranks of this host
  Arithmetic arithmetic;
  const SumBlocks& blocks;
  proto::Generation generation;  // this one, in which blocks are marked
  Merge here;                    // of the partials of this host
  PartialSums inputs;            // the partials
};

// This rank's part. The caller keeps `of` and the exchange until the task has ended. Every member
// of an earlier generation on this host must have left it.
[[nodiscard]] Task tree_sum(Exchange& x, const TreeSum& of);

}  // namespace regroup::collective::net
