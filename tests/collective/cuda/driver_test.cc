// The driver's table: what is missing has a name, and layouts are those of cuda.h where it is
// installed.
#include "collective/cuda/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

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

#if __has_include(<cuda.h>)
static_assert(sizeof(DevicePointer) == sizeof(CUdeviceptr));
static_assert(sizeof(DeviceIndex) == sizeof(CUdevice));
static_assert(sizeof(Allocation) == sizeof(CUmemGenericAllocationHandle));
static_assert(sizeof(DeviceUuid) == sizeof(CUuuid));
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(AllocationProperties, handle_types) ==
              offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(AllocationProperties, flags) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(sizeof(AccessDescription) == sizeof(CUmemAccessDesc));
static_assert(offsetof(AccessDescription, access) == offsetof(CUmemAccessDesc, flags));
static_assert(int(DriverResult::kNotReady) == CUDA_ERROR_NOT_READY);
static_assert(int(DriverResult::kIllegalAddress) == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(int(DriverResult::kEccUncorrectable) == CUDA_ERROR_ECC_UNCORRECTABLE);
static_assert(int(DeviceAttribute::kPosixFileDescriptorSupported) ==
              CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
static_assert(int(DeviceAttribute::kGpuDirectRdmaWithVmmSupported) ==
              CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
static_assert(int(PointerAttribute::kDeviceOrdinal) == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(kPosixFileDescriptor == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(kReadOnly == CU_MEM_ACCESS_FLAGS_PROT_READ);
static_assert(kReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kNonBlockingStream == CU_STREAM_NON_BLOCKING);
static_assert(kBlockingSync == CU_EVENT_BLOCKING_SYNC);
static_assert(kDisableTiming == CU_EVENT_DISABLE_TIMING);
#endif

}  // namespace
}  // namespace regroup::collective::cuda
