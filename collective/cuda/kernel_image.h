// The program of kernels.cu for GPUs, a fatbin that the build embeds where it finds nvcc.
#pragma once

#include <span>

namespace regroup::collective::cuda {

// Empty: built without nvcc. Static memory.
[[nodiscard]] std::span<const unsigned char> kernel_image();

}  // namespace regroup::collective::cuda
