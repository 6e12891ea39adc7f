// Kernels for the data of gpu_kernels, and the entries of kernels.cu as the runtime knows them.
#include "tests/gpu/device_kernels.h"

#include <cstring>

#include "collective/cuda/kernel_list.h"

namespace regroup::collective::cuda {

#define REGROUP_DECLARE(NAME, ARGUMENTS, ...) \
  extern "C" __global__ void NAME(const __grid_constant__ ARGUMENTS arguments);
REGROUP_KERNELS_OF_CUDA(REGROUP_DECLARE)

}  // namespace regroup::collective::cuda

namespace regroup::gpu {
namespace {

using namespace collective::cuda;  // of kernels only

__global__ void fill(const __grid_constant__ FillArguments a) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < a.count;
       i += stride) {
    std::uint64_t x = a.seed + i * 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x ^= x >> 27;
    // A random sign and mantissa; an exponent of 121 to 127.
    const auto exponent = static_cast<std::uint32_t>(121 + (x >> 40) % 7);
    a.words[i] = (static_cast<std::uint32_t>(x) & 0x807fffffU) | exponent << 23;
  }
}

__device__ std::uint64_t now() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

__global__ void delay(const __grid_constant__ DelayArguments a) {
  const std::uint64_t end = now() + a.nanoseconds;
  while (now() < end) {
  }
  *a.ended = end;
}

}  // namespace

const void* const kFillEntry = reinterpret_cast<const void*>(fill);
const void* const kDelayEntry = reinterpret_cast<const void*>(delay);

const void* kernel_entry(const char* name) {
#define REGROUP_FIND(NAME, ARGUMENTS, ...) \
  if (std::strcmp(name, #NAME) == 0) return reinterpret_cast<const void*>(NAME);
  REGROUP_KERNELS_OF_CUDA(REGROUP_FIND)
  return nullptr;
}

}  // namespace regroup::gpu
