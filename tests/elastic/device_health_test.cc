// What the check of a GPU finds, over the driver of tests/fakes/cuda.
#include "elastic/device_health.h"

#include <gmock/gmock.h>

#include <chrono>

#include "tests/fakes/cuda/process.h"

namespace regroup::elastic {
namespace {

using fakes::cuda::Gpu;
using fakes::cuda::Hold;
using fakes::cuda::in_process;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::MatchesRegex;

constexpr auto kLong = std::chrono::minutes(5);
constexpr auto kShort = milliseconds(1500);

TEST(DeviceHealth, AHealthyGpuHasNoFault) {
  in_process([] {
    const Gpu gpu;
    const auto found = check_device(0, gpu.stream, nullptr, kLong);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->gpu, "GPU-face7265-6772-6f75-7000-000000000000");
    EXPECT_EQ(found->chip, "NVIDIA H100 80GB HBM3");
    EXPECT_THAT(found->faults, IsEmpty());
  });
}

// Without a context, and in one process after the other.
TEST(DeviceHealth, AMigInstanceHasItsOwnName) {
  in_process(
      [] {
        (void)fakes::cuda::load_fake();
        const auto found = check_device(1, nullptr, nullptr, kLong);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->gpu, "MIG-7ace7265-6772-6f75-7000-000000000001");
        EXPECT_THAT(found->faults, IsEmpty());
      },
      "devices=2;mig=1");
}

TEST(DeviceHealth, WrongBitsAreAFault) {
  in_process(
      [] {
        const Gpu gpu;
        const auto found = check_device(0, gpu.stream, nullptr, kLong);
        ASSERT_TRUE(found);
        EXPECT_THAT(found->faults, ElementsAre("GPU 0: the fixed product has wrong bits in 1 of "
                                               "132 blocks, the first is block 0"));
      },
      "wrong_product=1");
}

// The second work is the first launch.
TEST(DeviceHealth, NoAnswerOnAnIdleStreamIsAFault) {
  in_process(
      [] {
        const Gpu gpu;
        const auto found = check_device(0, gpu.stream, nullptr, kShort);
        ASSERT_TRUE(found);
        EXPECT_THAT(found->faults,
                    ElementsAre(MatchesRegex("GPU 0: the fixed product: not done after [0-9]+ s")));
      },
      "", "at=2 hang");
}

// What the program has put on its stream may take any time.
TEST(DeviceHealth, ABusyProgramIsNoFault) {
  in_process([] {
    const Gpu gpu;
    Hold hold(gpu, gpu.stream);
    EXPECT_FALSE(check_device(0, gpu.stream, nullptr, milliseconds(200)));
    hold.release();
    const auto found = check_device(0, gpu.stream, nullptr, kLong);
    ASSERT_TRUE(found);
    EXPECT_THAT(found->faults, IsEmpty());
  });
}

TEST(DeviceHealth, ASlowStartIsNoFault) {
  in_process(
      [] {
        const Gpu gpu;
        const auto found = check_device(0, gpu.stream, nullptr, kLong);
        ASSERT_TRUE(found);
        EXPECT_THAT(found->faults, IsEmpty());
      },
      "", "at=2 slow=20");
}

// Not by itself: the member ends with that error, and its slot is charged.
TEST(DeviceHealth, AnErrorOfTheDriverIsNoFault) {
  for (const char* fault : {"at=1 oom", "at=1 illegal", "at=2 ecc"}) {
    in_process(
        [] {
          const Gpu gpu;
          const auto found = check_device(0, gpu.stream, nullptr, kLong);
          EXPECT_TRUE(!found || found->faults.empty());
        },
        "", fault);
  }
}

TEST(DeviceHealth, WithoutTheDeviceNothingIsChecked) {
  in_process([] {
    (void)fakes::cuda::load_fake();
    EXPECT_FALSE(check_device(3, nullptr, nullptr, kLong));
  });
}

}  // namespace
}  // namespace regroup::elastic
