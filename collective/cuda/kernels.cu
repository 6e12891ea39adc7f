// The entries of the GPU's program. Built with -fmad=false: nothing is fused.
#include "collective/cuda/kernel_list.h"

namespace regroup::collective::cuda {

// Four blocks on a multiprocessor: at most 64 registers.
#define REGROUP_ENTRY(NAME, ARGUMENTS, ...)                                      \
  extern "C" __global__ void __launch_bounds__(kBlockThreads, 4)                 \
      NAME(const __grid_constant__ ARGUMENTS arguments) {                        \
    __VA_ARGS__::run(arguments, {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x}); \
  }
REGROUP_KERNELS_OF_CUDA(REGROUP_ENTRY)

}  // namespace regroup::collective::cuda
