// CUDA's driver library, libcuda.so.1, loaded at run time: programs start on hosts without it. The
// part of its interface that is used, with its names and layouts (cuda.h of CUDA 13;
// tests/python/test_gpu_headers.py compares them). No CUDA runtime library is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace regroup::collective::cuda {

// A CUresult; only those that callers tell apart.
enum class DriverResult : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeviceUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kEccUncorrectable = 214,
  kNotReady = 600,
  kIllegalAddress = 700,
  kAssert = 710,
  kLaunchFailed = 719,
  kNotPermitted = 800,
  kNotSupported = 801,
};

using DevicePointer = unsigned long long;  // CUdeviceptr
using DeviceIndex = int;                   // CUdevice
using Allocation = unsigned long long;     // CUmemGenericAllocationHandle
using Context = struct CUctx_st*;
using Stream = struct CUstream_st*;
using DriverEvent = struct CUevent_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;

struct DeviceUuid {
  unsigned char bytes[16];
};

// "GPU-" and 32 digits in five groups, as nvidia-smi and CUDA_VISIBLE_DEVICES have it.
[[nodiscard]] std::string text_of(const DeviceUuid& uuid);

enum class DeviceAttribute : int {
  kMultiprocessorCount = 16,
  kComputeMode = 20,
  kEccEnabled = 32,
  kL2CacheSize = 38,
  kAsyncEngineCount = 40,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kPageableMemoryAccess = 88,
  kComputePreemptionSupported = 90,
  kHostRegisterSupported = 99,
  kVirtualMemoryManagementSupported = 102,
  kPosixFileDescriptorSupported = 103,
  kGpuDirectRdmaWithVmmSupported = 110,
  kDmaBufSupported = 124,
  kFabricHandleSupported = 128,
  kMulticastSupported = 132,
};

enum class PointerAttribute : int { kMemoryType = 2, kDeviceOrdinal = 9 };
inline constexpr unsigned kMemoryTypeHost = 1;
inline constexpr unsigned kMemoryTypeDevice = 2;

struct MemoryLocation {
  int type = 1;  // a device
  int device = 0;
};

// Memory of a device that can be exported as a file descriptor.
struct AllocationProperties {
  int type = 1;          // pinned
  int handle_types = 1;  // POSIX file descriptors
  MemoryLocation location;
  void* win32_metadata = nullptr;
  struct {
    unsigned char compression = 0;
    unsigned char gpu_direct_rdma = 0;
    unsigned short usage = 0;
    unsigned char reserved[4] = {};
  } flags;
};

inline constexpr int kReadOnly = 1;
inline constexpr int kReadWrite = 3;
struct AccessDescription {
  MemoryLocation location;
  int access = kReadWrite;
};

inline constexpr int kPosixFileDescriptor = 1;
inline constexpr int kMinimumGranularity = 0;
inline constexpr unsigned kNonBlockingStream = 1;
inline constexpr unsigned kBlockingSync = 1;   // of an event: a waiter sleeps
inline constexpr unsigned kDisableTiming = 2;  // of an event
inline constexpr unsigned kHostRegisterPortable = 1;

// X(member, symbol, parameters...)
#define REGROUP_CUDA_FUNCTIONS(X)                                                                  \
  X(init, cuInit, unsigned)                                                                        \
  X(driver_version, cuDriverGetVersion, int*)                                                      \
  X(error_name, cuGetErrorName, DriverResult, const char**)                                        \
  X(error_string, cuGetErrorString, DriverResult, const char**)                                    \
  X(device_count, cuDeviceGetCount, int*)                                                          \
  X(device_get, cuDeviceGet, DeviceIndex*, int)                                                    \
  X(device_name, cuDeviceGetName, char*, int, DeviceIndex)                                         \
  X(device_uuid, cuDeviceGetUuid, DeviceUuid*, DeviceIndex)                                        \
  X(device_attribute, cuDeviceGetAttribute, int*, DeviceAttribute, DeviceIndex)                    \
  X(device_memory, cuDeviceTotalMem_v2, std::size_t*, DeviceIndex)                                 \
  X(device_can_access_peer, cuDeviceCanAccessPeer, int*, DeviceIndex, DeviceIndex)                 \
  X(primary_context_retain, cuDevicePrimaryCtxRetain, Context*, DeviceIndex)                       \
  X(primary_context_release, cuDevicePrimaryCtxRelease_v2, DeviceIndex)                            \
  X(context_set, cuCtxSetCurrent, Context)                                                         \
  X(context_get, cuCtxGetCurrent, Context*)                                                        \
  X(context_device, cuCtxGetDevice, DeviceIndex*)                                                  \
  X(memory_info, cuMemGetInfo_v2, std::size_t*, std::size_t*)                                      \
  X(memory_allocate, cuMemAlloc_v2, DevicePointer*, std::size_t)                                   \
  X(memory_free, cuMemFree_v2, DevicePointer)                                                      \
  X(pointer_attribute, cuPointerGetAttribute, void*, PointerAttribute, DevicePointer)              \
  X(host_register, cuMemHostRegister_v2, void*, std::size_t, unsigned)                             \
  X(host_unregister, cuMemHostUnregister, void*)                                                   \
  X(copy_to_host, cuMemcpyDtoHAsync_v2, void*, DevicePointer, std::size_t, Stream)                 \
  X(copy_to_device, cuMemcpyHtoDAsync_v2, DevicePointer, const void*, std::size_t, Stream)         \
  X(copy_on_device, cuMemcpyDtoDAsync_v2, DevicePointer, DevicePointer, std::size_t, Stream)       \
  X(set_bytes, cuMemsetD8Async, DevicePointer, unsigned char, std::size_t, Stream)                 \
  X(granularity, cuMemGetAllocationGranularity, std::size_t*, const AllocationProperties*, int)    \
  X(allocation_create, cuMemCreate, Allocation*, std::size_t, const AllocationProperties*,         \
    unsigned long long)                                                                            \
  X(allocation_release, cuMemRelease, Allocation)                                                  \
  X(allocation_export, cuMemExportToShareableHandle, void*, Allocation, int, unsigned long long)   \
  X(allocation_import, cuMemImportFromShareableHandle, Allocation*, void*, int)                    \
  X(address_reserve, cuMemAddressReserve, DevicePointer*, std::size_t, std::size_t, DevicePointer, \
    unsigned long long)                                                                            \
  X(address_free, cuMemAddressFree, DevicePointer, std::size_t)                                    \
  X(map, cuMemMap, DevicePointer, std::size_t, std::size_t, Allocation, unsigned long long)        \
  X(unmap, cuMemUnmap, DevicePointer, std::size_t)                                                 \
  X(set_access, cuMemSetAccess, DevicePointer, std::size_t, const AccessDescription*, std::size_t) \
  X(stream_create, cuStreamCreateWithPriority, Stream*, unsigned, int)                             \
  X(stream_destroy, cuStreamDestroy_v2, Stream)                                                    \
  X(stream_query, cuStreamQuery, Stream)                                                           \
  X(stream_synchronize, cuStreamSynchronize, Stream)                                               \
  X(stream_wait_event, cuStreamWaitEvent, Stream, DriverEvent, unsigned)                           \
  X(stream_is_capturing, cuStreamIsCapturing, Stream, int*)                                        \
  X(event_create, cuEventCreate, DriverEvent*, unsigned)                                           \
  X(event_destroy, cuEventDestroy_v2, DriverEvent)                                                 \
  X(event_record, cuEventRecord, DriverEvent, Stream)                                              \
  X(event_query, cuEventQuery, DriverEvent)                                                        \
  X(event_synchronize, cuEventSynchronize, DriverEvent)                                            \
  X(event_elapsed, cuEventElapsedTime, float*, DriverEvent, DriverEvent)                           \
  X(module_load, cuModuleLoadData, Module*, const void*)                                           \
  X(module_function, cuModuleGetFunction, Function*, Module, const char*)                          \
  X(launch, cuLaunchKernel, Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,  \
    unsigned, Stream, void**, void**)

// The loaded library. Copyable, since the library stays loaded for the lifetime of the process.
// Calls of its functions follow CUDA's rules for threads and contexts.
struct Driver {
#define REGROUP_CUDA_DECLARE(member, symbol, ...) \
  DriverResult (*member)(__VA_ARGS__) = nullptr;  // NOLINT(bugprone-macro-parentheses)
  REGROUP_CUDA_FUNCTIONS(REGROUP_CUDA_DECLARE)
#undef REGROUP_CUDA_DECLARE
  // cuDeviceGetUuid_v2, of drivers from CUDA 11.4 on; null in older ones.
  DriverResult (*visible_uuid)(DeviceUuid*, DeviceIndex) = nullptr;

  // "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (out of memory)" with the code that fits; ok for
  // kSuccess. `call` names the function and, where it helps, its object.
  [[nodiscard]] base::Status status(DriverResult result, const std::string& call) const;
};

// Loads `library` for the lifetime of the process and finds its functions, without cuInit().
// kUnavailable, with the reason: there is no such library ("no libcuda.so.1: ..."), or it lacks a
// function ("libcuda.so.1 has no cuMemCreate: ..."). Any thread. Does not block on a device.
[[nodiscard]] base::Result<Driver> load_driver(const std::string& library = "libcuda.so.1");

}  // namespace regroup::collective::cuda
