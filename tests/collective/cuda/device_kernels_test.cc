// The kernels as the driver loads and launches them: the bits of TreeFold for any plan, and reasons
// where there are no kernels.
#include "collective/cuda/device_kernels.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>

#include "collective/reduce/tree_fold.h"
#include "tests/collective/cuda/device_sums.h"
#include "tests/fakes/cuda/process.h"

namespace regroup::collective::testing::device_kernels {
namespace {

using fakes::cuda::Gpu;
using fakes::cuda::in_process;
using proto::Interval;

TEST(DeviceKernels, TheImageIsAProgramForGpusOrNone) {
  const auto [image, toolkit] = cuda::kernel_image();
  if (image.empty()) GTEST_SKIP() << "built without nvcc";
  constexpr unsigned char kFatbin[] = {0x50, 0xed, 0x55, 0xba};
  EXPECT_THAT(image.first(4), ::testing::ElementsAreArray(kFatbin));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(image.data()) % 8, 0U);
  EXPECT_GE(toolkit, 11000);
}

TEST(DeviceKernels, AreMissingWithoutNvcc) {
  const auto kernels = cuda::DeviceKernels::load({}, {});
  EXPECT_EQ(kernels.code(), base::Code::kUnavailable);
  EXPECT_EQ(kernels.status().message(), "built without nvcc: there are no device kernels");
}

TEST(DeviceKernels, NameTheCallThatRefusesThem) {
  in_process([] {
    Gpu gpu;
    gpu.driver.module_load = [](cuda::Module*, const void*) { return cuda::DriverResult(222); };
    const auto kernels = cuda::DeviceKernels::load(gpu.driver, kAnyImage);
    EXPECT_EQ(kernels.code(), base::Code::kUnavailable);
    EXPECT_THAT(
        kernels.status().message(),
        ::testing::StartsWith("the device kernels cannot be loaded: GPU 0: cuModuleLoadData: "));
  });
}

// An element of a matrix of the fixed product, exactly.
float product_input(std::uint32_t row, std::uint32_t column) {
  std::uint32_t bits = row * 0x9e3779b1U + column * 0x85ebca77U;
  bits = (bits ^ bits >> 15) * 0xc2b2ae3dU;
  return static_cast<float>(static_cast<std::int16_t>(bits >> 16)) / 32768;
}

// The product of inputs `number`, element by element; a thread's word is of 4 x 4 of them.
std::vector<std::uint32_t> product_words(std::uint32_t number) {
  constexpr std::uint32_t kSide = 64, kDepth = 32;
  std::vector<float> elements(std::size_t{kSide} * kSide);
  for (std::uint32_t i = 0; i < kSide; ++i)
    for (std::uint32_t j = 0; j < kSide; ++j)
      for (std::uint32_t k = number * kDepth; k < (number + 1) * kDepth; ++k)
        elements[i * kSide + j] += product_input(i, k) * product_input(k, j + 65536);
  std::vector<std::uint32_t> words(cuda::kProductThreads, 0x811c9dc5U);
  for (std::uint32_t i = 0; i < kSide; ++i)
    for (std::uint32_t j = 0; j < kSide; ++j) {
      std::uint32_t& word = words[i / 4 * 16 + j / 4];
      word = (word ^ std::bit_cast<std::uint32_t>(elements[i * kSide + j])) * 0x01000193U;
    }
  return words;
}

// Rounds take the four inputs by turns, from any of them on, and add to what is there.
TEST(DeviceKernels, EachBlockComputesTheFixedProduct) {
  in_process([] {
    const Gpu gpu;
    const auto kernels = cuda::DeviceKernels::load(gpu.driver, kAnyImage);
    ASSERT_TRUE(kernels.ok()) << kernels.status().message();
    const std::size_t words = kernels->product_words();
    ASSERT_GE(words, 2 * cuda::kProductThreads);
    const cuda::DevicePointer sums = gpu.allocate(words * sizeof(std::uint32_t));
    const std::span<std::uint32_t> found(reinterpret_cast<std::uint32_t*>(sums), words);
    std::ranges::fill(found, 5U);
    ASSERT_TRUE(kernels->product(sums, 3, 6, gpu.stream).ok());
    ASSERT_EQ(gpu->stream_synchronize(gpu.stream), cuda::DriverResult::kSuccess);
    std::vector<std::uint32_t> expected(cuda::kProductThreads, 5);
    for (const std::uint32_t number : {3U, 0U, 1U, 2U, 3U, 0U}) {
      const std::vector<std::uint32_t> added = product_words(number);
      for (std::size_t i = 0; i < added.size(); ++i) expected[i] += added[i];
    }
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(found[i], expected[i % cuda::kProductThreads]) << "word " << i;
  });
}

// More elements than a block has, and more inputs than a launch takes.
TEST(DeviceKernels, SumWithTheBitsOfTheCpu) {
  in_process([] {
    const Gpu gpu;
    const auto kernels = cuda::DeviceKernels::load(gpu.driver, kAnyImage);
    ASSERT_TRUE(kernels.ok()) << kernels.status().message();
    std::mt19937_64 random(5);
    for (const Dtype dtype : kFloats) {
      for (const std::uint32_t leaves : {1U, 2U, 5U, 16U, 40U, 300U}) {
        for (const Op op : {Op::kSum, Op::kAvg}) {
          const std::size_t count = leaves > 16 ? 100 + random() % 9 : 5000 + random() % 9;
          const DeviceSums sums(gpu, random_cover(leaves, random), leaves, dtype, count, random);
          const auto plan = cuda::TreePlan::compile(sums.nodes, leaves);
          ASSERT_TRUE(plan.ok());
          const std::size_t bytes = count * size_of(dtype);
          std::vector<void*> partials;
          for (std::size_t i = 0; i < plan->partial_count(); ++i)
            partials.push_back(
                reinterpret_cast<void*>(gpu.allocate(count * cuda::TreePlan::partial_size(dtype))));
          const cuda::DevicePointer result = gpu.allocate(bytes);
          const base::Status status =
              kernels->sum(*plan, {sums.pointers, partials, reinterpret_cast<void*>(result), count},
                           dtype, op, gpu.stream);
          ASSERT_TRUE(status.ok()) << status.message();
          ASSERT_EQ(download(gpu, result, bytes), sums.folded(dtype, op))
              << name_of(op) << " of " << leaves << " leaves of " << name_of(dtype);
        }
      }
    }
  });
}

TEST(DeviceKernels, HarvestALeaf) {
  in_process([] {
    const Gpu gpu;
    const auto kernels = cuda::DeviceKernels::load(gpu.driver, kAnyImage);
    ASSERT_TRUE(kernels.ok()) << kernels.status().message();
    constexpr std::size_t kCount = 20'000;
    const Bytes gradient = make_leaf(Dtype::kFloat32, kCount, 7, true);
    const cuda::DevicePointer source = gpu.allocate(gradient.size());
    const cuda::DevicePointer leaf = gpu.allocate(gradient.size());
    const cuda::DevicePointer table = gpu.allocate(sizeof(cuda::HarvestPiece));
    const cuda::HarvestPiece piece{reinterpret_cast<void*>(source), 0, kCount};
    upload(gpu, source, gradient);
    upload(gpu, table, std::as_bytes(std::span(&piece, 1)));
    const cuda::HarvestArguments arguments{reinterpret_cast<cuda::HarvestPiece*>(table), 1,
                                           reinterpret_cast<void*>(leaf), kCount, 1.0};
    ASSERT_TRUE(kernels->harvest(arguments, Dtype::kFloat32, gpu.stream).ok());
    // One leaf alone: what the tree makes of it, with its one NaN.
    const auto fold = reduce::TreeFold::compile(std::vector<Interval>{{0, 1}}, 1);
    Bytes want(gradient.size());
    fold->run(std::vector<const std::byte*>{gradient.data()}, {0, want.size()}, want.data(),
              Dtype::kFloat32, Op::kSum, reduce::Stores::kPlain);
    EXPECT_EQ(download(gpu, leaf, want.size()), want);
  });
}

TEST(DeviceKernels, RefuseWhatTheyCannotAdd) {
  in_process([] {
    const Gpu gpu;
    const auto kernels = cuda::DeviceKernels::load(gpu.driver, kAnyImage);
    const auto plan = cuda::TreePlan::compile(std::vector<Interval>{{0, 1}}, 1);
    ASSERT_TRUE(kernels.ok() && plan.ok());
    const base::Status integers = kernels->sum(*plan, {}, Dtype::kInt32, Op::kSum, gpu.stream);
    EXPECT_EQ(integers.code(), base::Code::kInvalidArgument);
    EXPECT_EQ(integers.message(),
              "a sum on a GPU is a sum or an average of floats, not sum of int32");
    EXPECT_EQ(kernels->sum(*plan, {}, Dtype::kFloat32, Op::kMax, gpu.stream).code(),
              base::Code::kInvalidArgument);
    EXPECT_EQ(kernels->harvest({}, Dtype::kFloat16, gpu.stream).code(),
              base::Code::kInvalidArgument);
  });
}

}  // namespace
}  // namespace regroup::collective::testing::device_kernels
