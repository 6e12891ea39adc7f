// The kernels by name: kernels.cu makes entries of a GPU's program of them, host_kernels.cc
// functions of a CPU.
#pragma once

#include "collective/cuda/harvest_kernel.h"
#include "collective/cuda/product_kernel.h"
#include "collective/cuda/tree_kernel.h"

namespace regroup::collective::cuda {

inline constexpr int kBlockThreads = 256;  // at most

template <int kColumn, int kBatch>
using AnyTree = TreeShape<kColumn, 1, kBatch, kMostPending, 0, true>;
template <int kColumn, int kBatch>
using FewTree = TreeShape<kColumn, 1, kBatch, kFewPending>;
// Of 2, 4 or 8 inputs, in one batch; 1, 2 or 3 left operands wait.
template <int kColumn, int kColumns, int kInputs>
using EvenTree = TreeShape<kColumn, kColumns, kInputs, kInputs / 4 + 1, kInputs>;

}  // namespace regroup::collective::cuda

// KERNEL(name, parameters, what a thread does). `few`: sums of which at most kFewPending left
// operands wait. `evenN`: N inputs that a full binary tree adds; shapes that were fastest on an
// H200. Trees of 16-bit floats of which a launch takes a part only: `partial`
// leaves float32, `whole` rounds partial sums.
#define REGROUP_KERNELS_OF_CUDA(KERNEL)                                                      \
  KERNEL(regroup_tree_float32, TreeArguments, Tree<Float32, Float32, AnyTree<4, 4>>)         \
  KERNEL(regroup_tree_float64, TreeArguments, Tree<Float64, Float64, AnyTree<2, 2>>)         \
  KERNEL(regroup_tree_float16, TreeArguments, Tree<Float16, Float16, AnyTree<4, 4>>)         \
  KERNEL(regroup_tree_bfloat16, TreeArguments, Tree<Bfloat16, Bfloat16, AnyTree<4, 4>>)      \
  KERNEL(regroup_few_float32, TreeArguments, Tree<Float32, Float32, FewTree<4, 4>>)          \
  KERNEL(regroup_few_float64, TreeArguments, Tree<Float64, Float64, FewTree<2, 4>>)          \
  KERNEL(regroup_few_float16, TreeArguments, Tree<Float16, Float16, FewTree<4, 8>>)          \
  KERNEL(regroup_few_bfloat16, TreeArguments, Tree<Bfloat16, Bfloat16, FewTree<4, 8>>)       \
  KERNEL(regroup_even2_float32, TreeArguments, Tree<Float32, Float32, EvenTree<4, 2, 2>>)    \
  KERNEL(regroup_even2_float16, TreeArguments, Tree<Float16, Float16, EvenTree<8, 1, 2>>)    \
  KERNEL(regroup_even2_bfloat16, TreeArguments, Tree<Bfloat16, Bfloat16, EvenTree<8, 1, 2>>) \
  KERNEL(regroup_even4_float32, TreeArguments, Tree<Float32, Float32, EvenTree<4, 1, 4>>)    \
  KERNEL(regroup_even4_float16, TreeArguments, Tree<Float16, Float16, EvenTree<8, 1, 4>>)    \
  KERNEL(regroup_even4_bfloat16, TreeArguments, Tree<Bfloat16, Bfloat16, EvenTree<8, 1, 4>>) \
  KERNEL(regroup_even8_float32, TreeArguments, Tree<Float32, Float32, EvenTree<4, 1, 8>>)    \
  KERNEL(regroup_even8_float16, TreeArguments, Tree<Float16, Float16, EvenTree<4, 1, 8>>)    \
  KERNEL(regroup_even8_bfloat16, TreeArguments, Tree<Bfloat16, Bfloat16, EvenTree<4, 1, 8>>) \
  KERNEL(regroup_partial_float16, TreeArguments, Tree<Float16, Float32, AnyTree<4, 4>>)      \
  KERNEL(regroup_partial_bfloat16, TreeArguments, Tree<Bfloat16, Float32, AnyTree<4, 4>>)    \
  KERNEL(regroup_whole_float16, TreeArguments, Tree<Float32, Float16, AnyTree<4, 4>>)        \
  KERNEL(regroup_whole_bfloat16, TreeArguments, Tree<Float32, Bfloat16, AnyTree<4, 4>>)      \
  KERNEL(regroup_harvest_float32, HarvestArguments, Harvest<Float32, 4>)                     \
  KERNEL(regroup_harvest_float64, HarvestArguments, Harvest<Float64, 4>)                     \
  KERNEL(regroup_product, ProductArguments, Product)

namespace regroup::collective::cuda {

struct KernelRow {
  const char* name;
  std::uint64_t elements;  // of a thread at a time
};
#define REGROUP_ROW(NAME, ARGUMENTS, ...) {#NAME, __VA_ARGS__::kElements},
inline constexpr KernelRow kKernelRows[] = {REGROUP_KERNELS_OF_CUDA(REGROUP_ROW)};
#undef REGROUP_ROW

}  // namespace regroup::collective::cuda
