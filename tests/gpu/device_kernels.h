// The kernels that gpu_kernels runs, by entry: those of collective/cuda, and what the program needs
// besides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/cuda/harvest_kernel.h"
#include "collective/cuda/tree_kernel.h"

namespace regroup::gpu {

// The entry of kernels.cu of that name; null if there is none.
[[nodiscard]] const void* kernel_entry(const char* name);

// Makes numbers between -2 and 2 of the places of 32-bit words.
struct FillArguments {
  std::uint32_t* words;
  std::uint64_t count;
  std::uint64_t seed;
};
// Keeps the GPU busy for so long, so that what is launched after it waits in the queue.
struct DelayArguments {
  std::uint64_t nanoseconds;
  std::uint64_t* ended;  // written to at the end
  std::uint64_t unused;
};
extern const void* const kFillEntry;
extern const void* const kDelayEntry;

}  // namespace regroup::gpu
