// The driver's table: what is missing has a name, and errors have names and codes.
#include "collective/cuda/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup::collective::cuda {
namespace {

TEST(CudaDriver, AMissingLibraryIsNamed) {
  const auto driver = load_driver("libcuda-of-no-machine.so.1");
  EXPECT_EQ(driver.code(), base::Code::kUnavailable);
  EXPECT_THAT(driver.status().message(), ::testing::StartsWith("no libcuda-of-no-machine.so.1: "));
}

TEST(CudaDriver, AMissingFunctionIsNamed) {
  const auto driver = load_driver("libm.so.6");
  EXPECT_EQ(driver.code(), base::Code::kUnavailable);
  EXPECT_EQ(driver.status().message(), "libm.so.6 has no cuInit: the driver is too old");
}

// Of a driver that knows no error but 2.
DriverResult name_of(DriverResult result, const char** text) {
  *text = "CUDA_ERROR_OUT_OF_MEMORY";
  return result == DriverResult::kOutOfMemory ? DriverResult::kSuccess
                                              : DriverResult::kInvalidValue;
}

TEST(CudaDriver, ErrorsHaveTheNameOfTheCallAndOfTheResult) {
  Driver driver;
  driver.error_name = name_of;
  driver.error_string = name_of;
  EXPECT_TRUE(driver.status(DriverResult::kSuccess, "cuInit").ok());
  const base::Status memory = driver.status(DriverResult::kOutOfMemory, "cuMemCreate(GPU 1)");
  EXPECT_EQ(memory.code(), base::Code::kResourceExhausted);
  EXPECT_EQ(memory.message(),
            "cuMemCreate(GPU 1): CUDA_ERROR_OUT_OF_MEMORY (CUDA_ERROR_OUT_OF_MEMORY)");
  const base::Status unknown = driver.status(DriverResult(12345), "cuInit");
  EXPECT_EQ(unknown.code(), base::Code::kInternal);
  EXPECT_EQ(unknown.message(), "cuInit: CUDA error 12345 (unknown to this driver)");
}

}  // namespace
}  // namespace regroup::collective::cuda
