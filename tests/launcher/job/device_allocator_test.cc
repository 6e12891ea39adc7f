// regroup-devices over the fake driver, and its agent: memory outlives the process that created it,
// and every failure of the process is an answer.
#include "launcher/job/device_allocator.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace regroup::job {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kGpu = "GPU-face7265-6772-6f75-7000-000000000000";  // the fake's first
constexpr std::uint64_t kUnit = 2 << 20;

class DeviceAllocatorTest : public testing::Test {
 protected:
  DeviceAllocatorTest()
      : folder_(fs::path(testing::TempDir()) / ("device_allocator-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
    options_.program = REGROUP_DEVICES;
    options_.environment["LD_LIBRARY_PATH"] = fs::path(FAKE_CUDA).parent_path();
  }
  ~DeviceAllocatorTest() override { fs::remove_all(folder_); }

  void run_script(const std::string& script) {
    options_.program = folder_ / "regroup-devices";
    std::ofstream(options_.program) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(options_.program, fs::perms::owner_all);
  }
  void allocate(const std::string& gpu, std::uint64_t bytes) {
    if (!allocator_) allocator_ = std::make_unique<DeviceAllocator>(loop_, options_);
    allocator_->allocate(gpu, bytes, [this](const proto::DeviceMemory& memory, base::Fd fd) {
      answers_.push_back(memory);
      descriptors_.push_back(std::move(fd));
    });
  }
  // The answer to the request after `answered` others.
  proto::DeviceMemory answer(std::size_t answered = 0) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (answers_.size() <= answered && std::chrono::steady_clock::now() < deadline) {
      loop_.restart();
      loop_.run_one_for(std::chrono::milliseconds(100));
    }
    return answers_.size() > answered ? answers_[answered] : proto::DeviceMemory{.why = "none"};
  }
  // The fake's memory is that of the file.
  static char* map(const base::Fd& descriptor) {
    void* at = ::mmap(nullptr, kUnit, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
    return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
  }

  const fs::path folder_;
  boost::asio::io_context loop_;
  DeviceAllocatorOptions options_;
  std::vector<proto::DeviceMemory> answers_;
  std::vector<base::Fd> descriptors_;
  std::unique_ptr<DeviceAllocator> allocator_;
};

TEST_F(DeviceAllocatorTest, MemoryOutlivesTheProcessAndTheNextRequestStartsAnother) {
  allocate(kGpu, 1);
  EXPECT_EQ(answer().why, "");
  EXPECT_EQ(answers_.at(0).bytes, kUnit);
  EXPECT_EQ(answers_.at(0).device, 0U);
  char* const at = map(descriptors_.at(0));
  ASSERT_NE(at, nullptr);
  std::strcpy(at, "gradient");
  const pid_t first = allocator_->pid();
  ASSERT_GT(first, 0);
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  allocate(kGpu, kUnit + 1);
  EXPECT_EQ(answer(1).why, "");
  EXPECT_EQ(answers_.at(1).bytes, 2 * kUnit);
  EXPECT_NE(allocator_->pid(), first);
  EXPECT_STREQ(map(descriptors_.at(0)), "gradient");
}

TEST_F(DeviceAllocatorTest, RequestsAtOnceGetAnAnswerEach) {
  for (std::uint64_t units = 1; units <= 3; ++units) allocate(kGpu, units * kUnit);
  (void)answer(2);
  ASSERT_EQ(answers_.size(), 3U);
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answers_[i].why, "");
    EXPECT_EQ(answers_[i].bytes, (i + 1) * kUnit);
    EXPECT_TRUE(descriptors_[i].valid());
  }
}

TEST_F(DeviceAllocatorTest, WhatTheDriverRefusesIsTheAnswer) {
  options_.environment["REGROUP_FAKE_CUDA"] = "devices=2; memory=4M";
  allocate("GPU-unknown", 1);
  EXPECT_EQ(answer().why,
            "the driver does not show GPU-unknown to regroup-devices, which sees 2 GPUs");
  EXPECT_FALSE(answers_.at(0).full);
  allocate("GPU-face7265-6772-6f75-7000-000000000001", 3 * kUnit);
  EXPECT_THAT(answer(1).why,
              HasSubstr("GPU 1: cuMemCreate of 6291456 bytes: CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_TRUE(answers_.at(1).full);
  EXPECT_EQ(answers_.at(1).device, 1U);
  EXPECT_FALSE(descriptors_.at(1).valid());
}

TEST_F(DeviceAllocatorTest, ADeviceWithoutDescriptorsIsNamed) {
  options_.environment["REGROUP_FAKE_CUDA"] = "descriptors=0";
  allocate(kGpu, 1);
  EXPECT_EQ(answer().why, "GPU 0 cannot export memory as a file descriptor");
}

TEST_F(DeviceAllocatorTest, AHostWithoutADriverIsNamed) {
  std::ofstream(folder_ / "libcuda.so.1").flush();
  options_.environment["LD_LIBRARY_PATH"] = folder_;
  allocate(kGpu, 1);
  EXPECT_THAT(answer().why, HasSubstr("no libcuda.so.1: "));
}

TEST_F(DeviceAllocatorTest, MembersMayHaveGpusThatTheLauncherDoesNotShow) {
  run_script("[ -z \"$CUDA_VISIBLE_DEVICES\" ] && exec " REGROUP_DEVICES);
  options_.environment["CUDA_VISIBLE_DEVICES"] = "7";
  allocate(kGpu, 1);
  EXPECT_EQ(answer().why, "");
}

TEST_F(DeviceAllocatorTest, ARequestWhoseProcessEndsIsRepeated) {
  const std::string flag = folder_ / "once";
  run_script("[ -e " + flag + " ] && exec " REGROUP_DEVICES "\n: > " + flag + "\nexit 1");
  allocate(kGpu, 1);
  EXPECT_EQ(answer().why, "");
  EXPECT_TRUE(fs::exists(flag));
}

TEST_F(DeviceAllocatorTest, ThreeProcessesThatEndAreAFailure) {
  run_script("echo x >> " + (folder_ / "starts").string());
  allocate(kGpu, 1);
  EXPECT_EQ(answer().why,
            "regroup-devices has ended 3 times before it answered: the peer closed the connection");
  EXPECT_EQ(fs::file_size(folder_ / "starts"), 6U);
}

TEST_F(DeviceAllocatorTest, AProcessThatDoesNotAnswerIsAFailure) {
  run_script("exec sleep 600");
  options_.answer_limit = std::chrono::milliseconds(500);
  allocate(kGpu, 1);
  EXPECT_EQ(answer().why, "regroup-devices did not answer within 0.5 s");
  EXPECT_EQ(allocator_->pid(), 0);
}

TEST_F(DeviceAllocatorTest, NewRequestsDoNotPutOffTheEndOfAWait) {
  run_script("exec sleep 600");
  options_.answer_limit = std::chrono::milliseconds(500);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (answers_.empty() && std::chrono::steady_clock::now() < deadline) {
    allocate(kGpu, 1);
    loop_.restart();
    loop_.run_for(std::chrono::milliseconds(50));
  }
  ASSERT_FALSE(answers_.empty());
  EXPECT_EQ(answers_[0].why, "regroup-devices did not answer within 0.5 s");
}

TEST_F(DeviceAllocatorTest, AProgramThatIsMissingIsNamed) {
  options_.program = folder_ / "missing";
  allocate(kGpu, 1);
  EXPECT_THAT(answer().why, HasSubstr((folder_ / "missing").string()));
}

}  // namespace
}  // namespace regroup::job
