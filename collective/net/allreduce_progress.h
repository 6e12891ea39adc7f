// The progress of an allreduce that a revoke interrupted, so that the next generation can resume
// it: the blocks of the result that are complete on one host, and on all. The functions are pure,
// except those that access the marks, which are atomic. docs/design/ucx.md, Resuming.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "collective/net/layout.h"
#include "collective/net/merge.h"
#include "collective/sum_blocks.h"

namespace regroup::collective::net {

using Blocks = std::vector<proto::Interval>;  // disjoint, ascending

// What a host sends to the others before a sum: the tree nodes whose partial sums it holds, the
// blocks of the result that are complete, and the last generation in which it began this sum.
struct AllreduceProgress {
  TreeNodes tree_nodes;
  Blocks completed = {};
  proto::Generation generation = 0;
};
[[nodiscard]] std::vector<proto::Interval> encode(const AllreduceProgress& progress);
// Decodes what another host has sent. Keeps only blocks that are ascending and below `count`; does
// not check the tree nodes.
[[nodiscard]] AllreduceProgress decode_progress(std::span<const std::byte> bytes,
                                                std::uint32_t count);
[[nodiscard]] constexpr std::size_t max_encoded_bytes(std::size_t leaves, std::size_t blocks) {
  return (leaves + (blocks == 0 ? 0 : 1 + (blocks + 1) / 2)) * sizeof(proto::Interval);
}

// The blocks that are marked as complete.
[[nodiscard]] Blocks marked(const SumBlocks& blocks);
// Marks the blocks `which` as complete.
void mark(const SumBlocks& blocks, proto::Interval which);
// The blocks that are complete on both hosts; none if the hosts last began the sum in different
// generations.
[[nodiscard]] Blocks common_blocks(const AllreduceProgress& a, const AllreduceProgress& b);

// The result, `elements` long, divided into `count` blocks.
class BlockGrid {
 public:
  BlockGrid(std::size_t elements, std::size_t count);
  // The parts of `range` that are not in `completed`, ascending.
  [[nodiscard]] std::vector<Range> missing(Range range, const Blocks& completed) const;
  // The blocks that lie entirely in `range`.
  [[nodiscard]] proto::Interval whole_blocks(Range range) const;
  [[nodiscard]] Range elements_of(proto::Interval blocks) const;

 private:
  std::size_t elements_;
  std::size_t width_;
};

}  // namespace regroup::collective::net
