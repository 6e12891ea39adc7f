// Sums canonical partial sums in the order of the canonical tree (core/canonical.h), 4 KiB at a time, so that
// everything between the inputs and the result stays in the L1 cache. The tree is walked once, when the
// program is compiled; the inner loop is a list of additions of two blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/communicator.h"
#include "collective/shm/publish.h"
#include "core/status.h"
#include "core/world.h"

namespace regroup::collective {

struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Part `index` of `count` of `bytes` bytes: contiguous, balanced, cut at multiples of 64 bytes.
[[nodiscard]] ByteRange slice_of(std::size_t bytes, int index, int count);

class TreeSum {
 public:
  // For inputs that are the sums over `nodes`, in this order. kInvalidArgument unless these are disjoint
  // canonical nodes that cover 0..leaves-1.
  [[nodiscard]] static core::Result<TreeSum> compile(std::span<const core::Interval> nodes,
                                                     std::uint32_t leaves);

  // Writes the bytes `range` of the sum to out[0..]. `inputs[i]` is the sum over nodes[i] from byte 0, of any
  // alignment; it overlaps the output nowhere. `range` holds whole elements. Floating point: each addition is
  // rounded once, in the tree's order. Integers wrap. The caller publishes.
  void run(std::span<const std::byte* const> inputs, ByteRange range, std::byte* out, Dtype dtype,
           Stores stores) const;

 private:
  // A block: of an input, or of the scratch stack.
  struct Block {
    bool is_input = false;
    std::uint32_t index = 0;
  };
  // scratch[to] = left + right.
  struct Addition {
    std::uint32_t to;
    Block left;
    Block right;
  };
  struct Compiler;

  template <class Element>
  void run_as(std::span<const std::byte* const> inputs, ByteRange range, std::byte* out, Stores stores) const;

  std::vector<Addition> additions_;
  Block sum_;  // where the last addition left it, or the only input
};

}  // namespace regroup::collective
