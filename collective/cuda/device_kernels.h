// The kernels of kernels.cu, loaded by the driver: sums over the canonical tree, leaves that are
// filled from gradients, and the product that checks a GPU. A launch returns at once; no kernel
// waits for anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "collective/cuda/driver.h"
#include "collective/cuda/harvest_kernel.h"
#include "collective/cuda/kernel_image.h"
#include "collective/cuda/product_kernel.h"
#include "collective/cuda/tree_plan.h"
#include "regroup/operation.h"

namespace regroup::collective::cuda {

// Belongs to the context that was current at load() and is used with the same one current, by any
// thread. A value: copies use the same kernels, which stay loaded as long as the context.
class DeviceKernels {
 public:
  // Loads `image` for the device of the current context. kUnavailable, with the reason: the image
  // is empty ("built without nvcc"), or the driver or the device cannot use it.
  [[nodiscard]] static base::Result<DeviceKernels> load(
      const Driver& driver, std::span<const unsigned char> image = kernel_image().bytes);

  // Launches the sum of `plan` on `stream`: of memory that this device can read, into memory that
  // it can write. kInvalidArgument: `dtype` is no float, or `op` neither kSum nor kAvg. Other
  // errors are the driver's.
  [[nodiscard]] base::Status sum(const TreePlan& plan, const TreePlan::Memory& memory, Dtype dtype,
                                 Op op, Stream stream) const;
  // Launches the filling of a leaf on `stream`; `arguments.pieces` is memory of the device.
  // kInvalidArgument: `dtype` is neither kFloat32 nor kFloat64. Other errors are the driver's.
  [[nodiscard]] base::Status harvest(const HarvestArguments& arguments, Dtype dtype,
                                     Stream stream) const;
  // Launches rounds first_round .. first_round + rounds - 1 of the fixed product
  // (product_kernel.h) on `stream`, a block for each multiprocessor. `sums`: product_words() words
  // of the device. Errors are the driver's.
  [[nodiscard]] base::Status product(DevicePointer sums, std::uint32_t first_round,
                                     std::uint32_t rounds, Stream stream) const;
  [[nodiscard]] std::size_t product_words() const {
    return std::size_t{multiprocessors_} * kProductThreads;
  }

 private:
  struct Entry {
    const char* name;
    std::uint64_t elements;  // of a thread at a time
    Function function;
  };
  struct Grid {
    std::uint64_t blocks;
    unsigned threads;  // of a block
  };

  explicit DeviceKernels(const Driver& driver) : driver_(driver) {}
  [[nodiscard]] const Entry& entry(const char* name) const;
  template <class Arguments>
  [[nodiscard]] base::Status launch(const Entry& entry, Grid grid, const Arguments& arguments,
                                    Stream stream) const;

  Driver driver_;
  DeviceIndex device_ = 0;
  std::uint32_t multiprocessors_ = 1;
  std::vector<Entry> entries_;
};

}  // namespace regroup::collective::cuda
