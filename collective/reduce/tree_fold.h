// Reduces canonical partial results in the order of the canonical tree (proto/canonical.h), 4 KiB
// at a time, so that everything between the inputs and the result stays in the L1 cache. The tree
// is walked once, when the program is compiled; the inner loop is a list of combinations of two
// blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "collective/reduce/kernels.h"
#include "collective/reduce/publish.h"
#include "proto/world.h"
#include "regroup/operation.h"

namespace regroup::collective::reduce {

struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t size() const { return end - begin; }
};

// Part `index` of `count` of `bytes` bytes: contiguous, balanced, cut at multiples of 64 bytes.
[[nodiscard]] ByteRange slice_of(std::size_t bytes, int index, int count);

class TreeFold {
 public:
  // Compiles a fold whose inputs are the results over `nodes`, in this order. kInvalidArgument
  // unless these are disjoint canonical nodes that cover 0..leaves-1.
  [[nodiscard]] static base::Result<TreeFold> compile(std::span<const proto::Interval> nodes,
                                                      std::uint32_t leaves,
                                                      Simd simd = best_simd());

  // Writes the bytes `range` of the result, whole elements, to out[0..]. `inputs[i]` is the result
  // over nodes[i] from byte 0, at any alignment; an input that overlaps the output must coincide
  // with it. Each floating-point operation is rounded once, in the tree's order, whatever the
  // thread's rounding mode; 16-bit types are rounded once, at the end. The caller publishes.
  void run(std::span<const std::byte* const> inputs, ByteRange range, std::byte* out, Dtype dtype,
           Op op, Stores stores) const;
  // The kernel that run() calls for two inputs, inside StandardArithmetic. Null for 16-bit floats
  // and for any other number of inputs.
  [[nodiscard]] Kernels::Close close_of(Dtype dtype, Op op) const;
  // The divisor to pass to that kernel.
  [[nodiscard]] std::uint32_t divisor_of(Op op) const { return op == Op::kAvg ? leaves_ : 1; }
  [[nodiscard]] const Kernels& kernels() const { return *kernels_; }

 private:
  // A block of an input or of the scratch stack.
  struct Block {
    bool is_input = false;
    std::uint32_t index = 0;
  };
  // scratch[to] = left (op) right.
  struct Step {
    std::uint32_t to;
    Block left;
    Block right;
  };
  struct Compiler;
  class Runner;

  std::vector<Step> steps_;
  Block result_;  // the output of the last step, or the only input
  std::uint32_t leaves_ = 0;
  const Kernels* kernels_ = nullptr;
};

}  // namespace regroup::collective::reduce
