// Whether members can use plane cuda, and why not.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "collective/cuda/driver.h"
#include "collective/cuda/kernel_image.h"

namespace regroup::collective::cuda {

// Why this process cannot sum gradients on device `number`; "" if it can: there is no driver or no
// such device, the build has no kernels, or device or driver cannot use them or cannot share
// memory. `driver`: what load_driver() returned. Calls cuInit(), and makes no context.
[[nodiscard]] std::string why_not_cuda(const base::Result<Driver>& driver, int number,
                                       const KernelImage& image = kernel_image());

// Why kernels of one of these devices cannot read memory of another one, "GPU 0 and GPU 3 cannot
// read each other"; "" if all can. After cuInit().
[[nodiscard]] std::string why_not_between(const Driver& driver, std::span<const int> numbers);

}  // namespace regroup::collective::cuda
