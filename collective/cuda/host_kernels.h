// The device kernels on a CPU, one thread of the grid after another: for tests, and for a driver
// that pretends to be a GPU's.
#pragma once

#include <cstdint>
#include <string_view>

namespace regroup::collective::cuda {

struct HostKernel {
  const char* name;  // as the entry of kernels.cu is named
  // Runs a grid of `blocks` blocks of `threads` threads. `parameters` points to the kernel's
  // parameters, whose pointers are of memory that this process can read and write. Blocks until
  // all is done; any thread.
  void (*run)(const void* parameters, std::uint32_t blocks, std::uint32_t threads);
};

// The kernel of that name; null if there is none.
[[nodiscard]] const HostKernel* find_host_kernel(std::string_view name);

}  // namespace regroup::collective::cuda
