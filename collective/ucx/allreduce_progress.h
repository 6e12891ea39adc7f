// What is left of a sum that goes on: blocks of the result, those that a host has, and those that all have.
// Pure, but for the marks. docs/design/ucx.md, Going on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "collective/sum_blocks.h"
#include "collective/ucx/layout.h"
#include "collective/ucx/merge.h"

namespace regroup::collective {

using Blocks = std::vector<core::Interval>;  // disjoint, ascending

// What a host tells of a sum: the nodes that it has to bring, the blocks of the result that it has, and the
// last generation in which it had begun such a sum.
struct AllreduceProgress {
  Nodes nodes;
  Blocks completed = {};
  core::Generation generation = 0;
};
[[nodiscard]] std::vector<core::Interval> encode(const AllreduceProgress& progress);
// As a host has progress them, whatever they are; blocks are below `count`.
[[nodiscard]] AllreduceProgress decode_progress(std::span<const std::byte> bytes, std::uint32_t count);
[[nodiscard]] constexpr std::size_t max_encoded_bytes(std::size_t leaves, std::size_t blocks) {
  return (leaves + (blocks == 0 ? 0 : 1 + (blocks + 1) / 2)) * sizeof(core::Interval);
}

[[nodiscard]] Blocks marked(const SumBlocks& blocks);
void mark(const SumBlocks& blocks, core::Interval which);
// What both have; nothing where one of them has missed a generation that the other was in.
[[nodiscard]] Blocks common(const AllreduceProgress& a, const AllreduceProgress& b);

// `elements` in so many blocks.
class BlockGrid {
 public:
  BlockGrid(std::size_t elements, std::size_t count);
  // Parts of `range` outside of `there`, ascending.
  [[nodiscard]] std::vector<Range> missing_ranks(Range range, const Blocks& there) const;
  // Blocks that begin at `range.begin` or behind, and end by `range.end`.
  [[nodiscard]] core::Interval whole_blocks(Range range) const;
  [[nodiscard]] Range elements_of(core::Interval blocks) const;

 private:
  std::size_t elements_, width_;
};

}  // namespace regroup::collective
