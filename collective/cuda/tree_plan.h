// Which launches of the tree kernel sum a set of partial sums, whatever nodes of the canonical tree
// they are over. Up to kMostInputs inputs take one launch. More are first summed over parts of the
// tree, of at most kMostInputs inputs each, into partial sums of the plan's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "collective/cuda/tree_kernel.h"
#include "proto/world.h"
#include "regroup/operation.h"

namespace regroup::collective::cuda {

class TreePlan {
 public:
  struct Launch {
    // In the order of the leaves: numbers of nodes as compile() had them or, if `of_partials`, of
    // earlier launches.
    std::vector<std::uint32_t> inputs;
    std::vector<TreeStep> steps;  // of each input
    bool of_partials = false;
    std::uint32_t pending = 0;  // left operands that wait at the same time
    bool even = false;          // a full binary tree of 2, 4 or 8 inputs
  };
  // Memory of a sum. Pointers are those of the machine on which the kernels run, aligned to 16
  // bytes, and belong to the caller.
  struct Memory {
    std::span<const void* const> inputs;  // of each node that compile() had, `count` elements
    std::span<void* const> partials;  // partial_count() buffers of `count` * partial_size() bytes
    void* result;                     // `count` elements
    std::size_t count;
  };

  // Plans a sum whose inputs are the results over `nodes`, in this order. kInvalidArgument unless
  // these are disjoint canonical nodes that cover 0..leaves-1.
  [[nodiscard]] static base::Result<TreePlan> compile(std::span<const proto::Interval> nodes,
                                                      std::uint32_t leaves);

  // To be run in this order; the last one writes the result.
  [[nodiscard]] std::span<const Launch> launches() const { return launches_; }
  [[nodiscard]] std::size_t partial_count() const { return launches_.size() - 1; }
  // Bytes of an element of a partial sum: 16-bit floats are summed in float32.
  [[nodiscard]] static std::size_t partial_size(Dtype dtype);
  // The kernel of launch `number`; null for types that are no floats. `op` is kSum or kAvg.
  [[nodiscard]] const char* kernel_of(std::size_t number, Dtype dtype, Op op) const;
  // Its parameters.
  [[nodiscard]] TreeArguments arguments_of(std::size_t number, const Memory& memory, Op op) const;

 private:
  struct Compiler;

  std::vector<Launch> launches_;
  std::uint32_t leaves_ = 0;
};

}  // namespace regroup::collective::cuda
