// What the check of a GPU finds, over the driver of tests/fakes/cuda.
#include "elastic/device_health.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cfenv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/values.h"
#include "elastic/nvml_faults.h"
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
constexpr auto kShort = std::chrono::seconds(4);

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

TEST(DeviceHealth, WrongBitsOnceAreNoFault) {
  in_process(
      [] {
        const Gpu gpu;
        const auto found = check_device(0, gpu.stream, nullptr, kLong);
        ASSERT_TRUE(found);
        EXPECT_THAT(found->faults, IsEmpty());
      },
      "wrong_once=1");
}

// A program may have changed the rounding of its thread, and a processor may be faulty: then what
// the GPU computed is not known as wrong.
TEST(DeviceHealth, WrongBitsOfTheProcessorAreNoFaultOfTheGpu) {
  in_process(
      [] {
        const Gpu gpu;
        ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
        const auto found = check_device(0, gpu.stream, nullptr, kLong);
        ASSERT_TRUE(found);
        EXPECT_THAT(found->faults, IsEmpty());
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

// Another process stops this one for longer than the limit, while it waits.
void stop_for(std::chrono::seconds time) {
  const pid_t stopped = ::getpid(), stopper = ::fork();
  if (stopper == 0) {
    ::usleep(500'000);
    ::kill(stopped, SIGSTOP);
    ::sleep(static_cast<unsigned>(time.count()));
    ::kill(stopped, SIGCONT);
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(stopper, &status, 0), stopper);
}

TEST(DeviceHealth, AMemberThatWasStoppedIsNoFaultOfTheGpu) {
  in_process([] {
    const Gpu gpu;
    Hold hold(gpu, gpu.stream);
    std::thread stopper([&] {
      stop_for(2 * kShort);
      hold.release();
    });
    const auto found = check_device(0, gpu.stream, nullptr, kShort);
    stopper.join();
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
        "wrong_product=1", fault);  // which is seen if the error does not come first
  }
}

// What NVML says of the fake GPU.
std::vector<std::string> found_with(const std::string& facts) {
  EXPECT_NE(::dlopen(FAKE_NVML, RTLD_NOW | RTLD_LOCAL), nullptr) << ::dlerror();
  std::string rows;
  for (const std::string& fact : base::split(facts, " "))
    rows += "GPU-face7265-6772-6f75-7000-000000000000 " + fact + ";";
  ::setenv("REGROUP_FAKE_NVML", rows.c_str(), 1);
  const Gpu gpu;
  const auto found = check_device(0, gpu.stream, nullptr, kLong);
  EXPECT_TRUE(found);
  return found ? found->faults : std::vector<std::string>();
}

TEST(DeviceHealth, HardFactsOfNvmlAreFaultsAndOthersAreNone) {
  const std::pair<const char*, const char*> rows[] = {
      {"action=1", "the driver asks for a reset of the GPU"},
      {"action=2", "the driver asks for a reboot of the host"},
      {"action=4", "the driver asks for an end of all work and a reset of the GPU"},
      {"failed=1", "a remap of a memory row failed"}};
  for (const auto& [facts, fault] : rows)
    in_process([&] { EXPECT_THAT(found_with(facts), ElementsAre(fault)) << facts; });
  for (const char* facts : {"action=0", "action=3", "action=5", "ecc=9 pending=1"})
    in_process([&] { EXPECT_THAT(found_with(facts), IsEmpty()) << facts; });
}

// Of a MIG instance those of its GPU.
TEST(DeviceHealth, NvmlIsAskedForTheWholeGpu) {
  in_process(
      [] { EXPECT_THAT(found_with("failed=1"), ElementsAre("a remap of a memory row failed")); },
      "mig=1");
}

TEST(DeviceHealth, NvmlThatDoesNotAnswerIsNoFault) {
  in_process([] {
    EXPECT_NE(::dlopen(FAKE_NVML, RTLD_NOW | RTLD_LOCAL), nullptr) << ::dlerror();
    ::setenv("REGROUP_FAKE_NVML", "GPU-face7265-6772-6f75-7000-000000000000 hang=1", 1);
    EXPECT_THAT(nvml_faults("GPU-face7265-6772-6f75-7000-000000000000", milliseconds(50)),
                IsEmpty());
  });
}

// What the driver says is known without work on the GPU.
TEST(DeviceHealth, NvmlIsAskedAlsoWhileTheProgramIsBusy) {
  in_process([] {
    EXPECT_NE(::dlopen(FAKE_NVML, RTLD_NOW | RTLD_LOCAL), nullptr) << ::dlerror();
    ::setenv("REGROUP_FAKE_NVML", "GPU-face7265-6772-6f75-7000-000000000000 failed=1", 1);
    const Gpu gpu;
    Hold hold(gpu, gpu.stream);
    const auto found = check_device(0, gpu.stream, nullptr, kShort);
    ASSERT_TRUE(found);
    EXPECT_THAT(found->faults, ElementsAre("a remap of a memory row failed"));
    hold.release();
  });
}

TEST(DeviceHealth, AContextIsThatOfTheThread) {
  in_process([] {
    (void)fakes::cuda::load_fake();
    EXPECT_FALSE(has_device_context());
    const Gpu gpu;
    EXPECT_TRUE(has_device_context());
    std::thread([] { EXPECT_FALSE(has_device_context()); }).join();
  });
}

TEST(DeviceHealth, WithoutTheDeviceNothingIsChecked) {
  in_process([] {
    (void)fakes::cuda::load_fake();
    EXPECT_FALSE(check_device(3, nullptr, nullptr, kLong));
  });
}

}  // namespace
}  // namespace regroup::elastic
