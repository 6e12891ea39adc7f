// The program of kernels.cu for GPUs, a fatbin that the build embeds where it finds nvcc.
#pragma once

#include <span>

namespace regroup::collective::cuda {

struct KernelImage {
  std::span<const unsigned char> bytes;  // static memory; empty: built without nvcc
  int toolkit = 0;                       // version of nvcc, as of CUDA: 13000 is 13.0

  // The chips of the image: compute capability at least this, in tenths.
  static constexpr int kLeastCapability = 80;
  // From this one on the image has PTX alone.
  static constexpr int kFirstOfPtx = 100;
};

[[nodiscard]] KernelImage kernel_image();

}  // namespace regroup::collective::cuda
