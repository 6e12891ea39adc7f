// Partial sums in memory of the fake GPU, and their sum by the CPU. For tests of device_test.
#pragma once

#include <random>
#include <span>
#include <vector>

#include "collective/reduce/tree_fold.h"
#include "tests/collective/harness.h"
#include "tests/collective/reference.h"
#include "tests/fakes/cuda/process.h"

namespace regroup::collective::testing {

inline constexpr Dtype kFloats[] = {Dtype::kFloat32, Dtype::kFloat64, Dtype::kFloat16,
                                    Dtype::kBfloat16};
// The fake has the kernels whatever the image is.
inline constexpr unsigned char kAnyImage[] = {1};

inline void upload(const fakes::cuda::Gpu& gpu, cuda::DevicePointer to,
                   std::span<const std::byte> from) {
  EXPECT_EQ(gpu->copy_to_device(to, from.data(), from.size(), gpu.stream), fakes::cuda::kSuccess);
  EXPECT_EQ(gpu->stream_synchronize(gpu.stream), fakes::cuda::kSuccess);
}

[[nodiscard]] inline Bytes download(const fakes::cuda::Gpu& gpu, cuda::DevicePointer from,
                                    std::size_t bytes) {
  Bytes out(bytes);
  EXPECT_EQ(gpu->copy_to_host(out.data(), from, bytes, gpu.stream), fakes::cuda::kSuccess);
  EXPECT_EQ(gpu->stream_synchronize(gpu.stream), fakes::cuda::kSuccess);
  return out;
}

// NaN, infinities, -0 and denormals are among the numbers.
struct DeviceSums {
  DeviceSums(const fakes::cuda::Gpu& gpu, std::vector<proto::Interval> of, std::uint32_t leaf_count,
             Dtype dtype, std::size_t count, std::mt19937_64& random)
      : nodes(std::move(of)), leaves(leaf_count) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      values.push_back(make_leaf(dtype, count, random(), true));
      const cuda::DevicePointer at = gpu.allocate(values.back().size());
      upload(gpu, at, values.back());
      pointers.push_back(reinterpret_cast<const void*>(at));
    }
  }

  [[nodiscard]] Bytes folded(Dtype dtype, Op op) const {
    std::vector<const std::byte*> inputs;
    for (const Bytes& value : values) inputs.push_back(value.data());
    Bytes out(values[0].size());
    const auto fold = reduce::TreeFold::compile(nodes, leaves);
    EXPECT_TRUE(fold.ok()) << fold.status().to_string();
    fold->run(inputs, {0, out.size()}, out.data(), dtype, op, reduce::Stores::kPlain);
    return out;
  }

  std::vector<proto::Interval> nodes;
  std::uint32_t leaves;
  std::vector<Bytes> values;
  std::vector<const void*> pointers;
};

}  // namespace regroup::collective::testing
