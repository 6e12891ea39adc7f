// A libcuda.so.1 for machines without a GPU: every function of REGROUP_CUDA_FUNCTIONS over host
// memory, loaded as the real library is (load_driver(path)). Device memory is memory of the host
// at the same address, so that ThreadSanitizer sees who touches it; streams are threads; kernels
// are functions of the host: the product's, store_word, store_time and what a test adds. Where
// CUDA's documentation leaves a choice, the stricter one is taken.
//
// REGROUP_FAKE_CUDA: settings, separated by ';', read at cuInit():
//   devices=N         number of devices, at most 16 (1)
//   name=TEXT         (NVIDIA H100 80GB HBM3)
//   memory=BYTES      of each device, with an optional K, M or G (80G)
//   uuid=HEX          32 digits, of device 0; device i has i added to the last byte
//   driver=VERSION    what cuDriverGetVersion says (13000)
//   peers=0|1         whether devices can read each other (1)
//   descriptors=0|1   whether memory can be exported as a file descriptor (1)
//   import=0|1        whether memory of a file descriptor can be imported (1)
//   mig=0|1           the devices are MIG instances: each has a UUID of its own, which is that of
//                     the device with 0x80 added to the first byte (0)
//   wrong_product=0|1 each launch of the fixed product leaves a wrong bit (0)
//   wrong_once=0|1    the first one does (0)
//   state=FILE        made if it is missing: processes with the same file use the same devices,
//                     whose memory they share; without it each process has devices of its own
//
// REGROUP_FAKE_CUDA_FAULTS: faults, separated by ';', each "at=N KIND". N counts launches, copies
// and cuMemsetD8Async of the process from 1 (oom: cuMemCreate and cuMemAlloc):
//   illegal   the work fails with 700; so do all later calls of its context
//   assert    the same with 710
//   ecc       the same with 214
//   lost      the same with 719; all other contexts of the device, of all processes with the same
//             state file, and all calls that name the device fail with 999 until the file is
//             removed
//   hang      the stream makes no progress until the process dies
//   slow=X    this work and all later work takes X times as long, at least X * 10 us
//   oom       the allocation fails with 2
//
// Not imitated: the context's own memory; work that goes on for a while after SIGKILL; memory that
// lives by a descriptor after its maker has died is not counted as used.
#pragma once

#include <cstddef>
#include <tuple>
#include <utility>

#include "collective/cuda/driver.h"

namespace regroup::fakes::cuda {

inline constexpr const char* kSettingsVariable = "REGROUP_FAKE_CUDA";
inline constexpr const char* kFaultsVariable = "REGROUP_FAKE_CUDA_FAULTS";

struct Grid {
  unsigned blocks[3];
  unsigned threads[3];
};

// Runs a whole launch. `parameters` are addresses of copies of the launch's parameters.
using KernelBody = void (*)(const Grid& grid, const void* const* parameters);

struct Kernel {
  const char* name;
  KernelBody run;
  const std::size_t* parameter_bytes;
  std::size_t parameter_count;
  unsigned most_threads = 1024;  // of a block
};

template <auto Run, class... Parameters>
struct KernelOf {
  // NOLINTNEXTLINE(readability-identifier-naming,bugprone-sizeof-expression)
  static constexpr std::size_t kBytes[] = {sizeof(Parameters)..., 0};

  static void run(const Grid& grid, const void* const* parameters) {
    call(grid, parameters, std::index_sequence_for<Parameters...>());
  }

 private:
  template <std::size_t... Index>
  static void call(const Grid& grid, const void* const* parameters, std::index_sequence<Index...>) {
    Run(grid, *static_cast<const Parameters*>(parameters[Index])...);
  }
};

// The kernel `name` of `function(const Grid&, parameters...)`, whose parameters are passed by
// value.
template <auto Run, class... Parameters>
constexpr Kernel kernel_of(const char* name, void (*)(const Grid&, Parameters...)) {
  using Body = KernelOf<Run, Parameters...>;
  return {name, Body::run, Body::kBytes, sizeof...(Parameters)};
}

template <auto Run>
constexpr Kernel kernel(const char* name) {
  return kernel_of<Run>(name, Run);
}

// The fake's functions that CUDA has not, by dlsym() of these names.

// Adds a kernel to all modules; before cuModuleGetFunction() of it. `kernel` must stay.
inline constexpr const char* kAddKernel = "regroup_fake_cuda_add_kernel";
using AddKernel = void (*)(const Kernel* kernel);

// Sets what cuStreamIsCapturing() says of a stream: 0 none, 1 active, 2 invalidated. Work of a
// stream that captures is accepted and never done.
inline constexpr const char* kSetCapture = "regroup_fake_cuda_set_capture";
using SetCapture = void (*)(collective::cuda::Stream stream, int status);

}  // namespace regroup::fakes::cuda
