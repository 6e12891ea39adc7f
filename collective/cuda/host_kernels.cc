// Runs every thread of a grid in turn: the kernels have no barrier, and no thread reads what
// another writes.
#include "collective/cuda/host_kernels.h"

#include "collective/cuda/kernel_list.h"
#include "collective/reduce/standard_arithmetic.h"

namespace regroup::collective::cuda {
namespace {

template <class Kernel, class Arguments>
void run_grid(const void* parameters, std::uint32_t blocks, std::uint32_t threads) {
  const reduce::StandardArithmetic arithmetic;
  const auto& arguments = *static_cast<const Arguments*>(parameters);
  for (std::uint32_t block = 0; block < blocks; ++block) {
    for (std::uint32_t thread = 0; thread < threads; ++thread) {
      Kernel::run(arguments, {block, blocks, thread, threads});
    }
  }
}

#define REGROUP_ROW(NAME, ARGUMENTS, ...) {#NAME, run_grid<__VA_ARGS__, ARGUMENTS>},
constexpr HostKernel kHostKernels[] = {REGROUP_KERNELS_OF_CUDA(REGROUP_ROW)};
#undef REGROUP_ROW

}  // namespace

const HostKernel* find_host_kernel(std::string_view name) {
  for (const HostKernel& kernel : kHostKernels) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

}  // namespace regroup::collective::cuda
