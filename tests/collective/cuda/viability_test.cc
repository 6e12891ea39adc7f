// Every reason why plane cuda cannot serve has its words.
#include "collective/cuda/viability.h"

#include <gmock/gmock.h>

#include "tests/collective/cuda/device_sums.h"
#include "tests/fakes/cuda/process.h"

namespace regroup::collective::testing::viability {
namespace {

using fakes::cuda::in_process;
using fakes::cuda::load_fake;

constexpr cuda::KernelImage kImage{kAnyImage, 13000};

void expect_reason(const std::string& settings, int number,
                   const ::testing::Matcher<std::string>& reason) {
  in_process([&] { EXPECT_THAT(cuda::why_not_cuda(load_fake(), number, kImage), reason); },
             settings);
}

TEST(CudaViability, HasAReasonForEachObstacle) {
  expect_reason("", 0, ::testing::IsEmpty());
  expect_reason("driver=13010", 0, ::testing::IsEmpty());
  expect_reason("driver=12080", 0,
                ::testing::Eq("the driver is one of CUDA 12.8, the device kernels need 13.0"));
  expect_reason("descriptors=0", 0, ::testing::Eq("GPU 0 cannot share memory by file descriptors"));
  expect_reason("devices=2", 2, ::testing::StartsWith("GPU 2: cuDeviceGet: CUDA_ERROR_"));
}

TEST(CudaViability, NamesWhatIsMissing) {
  EXPECT_THAT(cuda::why_not_cuda(cuda::load_driver("libcuda-of-no-machine.so.1"), 0, kImage),
              ::testing::StartsWith("no libcuda-of-no-machine.so.1: "));
  in_process([] {
    cuda::Driver driver = load_fake();
    EXPECT_EQ(cuda::why_not_cuda(driver, 0, {}), "built without nvcc: there are no device kernels");
    driver.init = [](unsigned) { return cuda::DriverResult::kNoDevice; };
    EXPECT_THAT(cuda::why_not_cuda(driver, 0, kImage),
                ::testing::StartsWith("GPU 0: cuInit: CUDA_ERROR_NO_DEVICE"));
    driver = load_fake();
    driver.device_attribute = [](int* value, cuda::DeviceAttribute, cuda::DeviceIndex) {
      *value = 7;
      return cuda::DriverResult::kSuccess;
    };
    EXPECT_EQ(cuda::why_not_cuda(driver, 0, kImage),
              "GPU 0 has compute capability 7.7, the device kernels need 8.0");
  });
}

// The driver compiles PTX for chips that came after the toolkit, and reads that of no later
// version.
TEST(CudaViability, AChipThatNeedsPtxNeedsADriverAsNewAsTheToolkit) {
  constexpr cuda::KernelImage kLater{kAnyImage, 13010};
  for (const int capability : {90, 100, 120}) {
    static int major = 0;
    major = capability / 10;
    in_process([&] {
      cuda::Driver driver = load_fake();
      driver.device_attribute = [](int* value, cuda::DeviceAttribute asked, cuda::DeviceIndex) {
        *value = asked == cuda::DeviceAttribute::kComputeCapabilityMajor   ? major
                 : asked == cuda::DeviceAttribute::kComputeCapabilityMinor ? 0
                                                                           : 1;
        return cuda::DriverResult::kSuccess;
      };
      EXPECT_EQ(cuda::why_not_cuda(driver, 0, kImage), "");
      EXPECT_EQ(cuda::why_not_cuda(driver, 0, kLater),
                capability < 100 ? ""
                                 : "the driver is one of CUDA 13.0, the device kernels need 13.1 "
                                   "on GPU 0");
    });
  }
}

TEST(CudaViability, NamesGpusThatCannotReadEachOther) {
  const std::vector<int> both{0, 1};
  for (const char* peers : {"peers=1", "peers=0"}) {
    in_process(
        [&] {
          const cuda::Driver driver = load_fake();
          ASSERT_EQ(driver.init(0), cuda::DriverResult::kSuccess);
          EXPECT_EQ(cuda::why_not_between(driver, std::vector<int>{1, 1}), "");
          EXPECT_EQ(
              cuda::why_not_between(driver, both),
              peers == std::string("peers=1") ? "" : "GPU 0 and GPU 1 cannot read each other");
        },
        std::string("devices=2;") + peers);
  }
}

}  // namespace
}  // namespace regroup::collective::testing::viability
