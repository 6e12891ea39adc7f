"""The layouts and prototypes that the sources declare for CUDA's driver and NVML are those of
NVIDIA's headers. The product includes neither, so that it builds without them."""

import importlib.util
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Parameter by parameter, since pointers to opaque types have other names there.
SAME = """
#include <cstddef>
#include <type_traits>

template <class Ours, class Theirs>
constexpr bool is_alike() {
  if constexpr (std::is_pointer_v<Ours> != std::is_pointer_v<Theirs>) return false;
  if constexpr (std::is_same_v<Ours, void> || std::is_same_v<Theirs, void>)
    return std::is_same_v<Ours, Theirs>;
  else
    return sizeof(Ours) == sizeof(Theirs) &&
           std::is_floating_point_v<Ours> == std::is_floating_point_v<Theirs>;
}
template <class Ours, class Theirs>
struct Same : std::false_type {};
template <class R, class S, class... A, class... B>
  requires(sizeof...(A) == sizeof...(B))
struct Same<R (*)(A...), S (*)(B...)> {
  static constexpr bool value = is_alike<R, S>() && (is_alike<A, B>() && ... && true);
};
#define SAME_LAYOUT(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define SAME_PLACE(ours, a, theirs, b) \\
  static_assert(offsetof(ours, a) == offsetof(theirs, b), #theirs "." #b)
"""
DRIVER = """
#include "collective/cuda/driver.h"
#include <cuda.h>
#undef cuEventElapsedTime
extern "C" CUresult cuEventElapsedTime(float*, CUevent, CUevent);
#undef cuMemGetInfo
namespace ours = regroup::collective::cuda;
#define CHECK(member, symbol, ...) \\
  static_assert(Same<decltype(ours::Driver::member), decltype(&::symbol)>::value, #symbol);
REGROUP_CUDA_FUNCTIONS(CHECK)
SAME_LAYOUT(ours::AllocationProperties, CUmemAllocationProp);
SAME_PLACE(ours::AllocationProperties, handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_PLACE(ours::AllocationProperties, location, CUmemAllocationProp, location);
SAME_PLACE(ours::AllocationProperties, flags, CUmemAllocationProp, allocFlags);
SAME_PLACE(ours::AllocationProperties, flags.gpu_direct_rdma, CUmemAllocationProp,
           allocFlags.gpuDirectRDMACapable);
SAME_LAYOUT(ours::AccessDescription, CUmemAccessDesc);
SAME_PLACE(ours::AccessDescription, access, CUmemAccessDesc, flags);
SAME_LAYOUT(ours::DeviceUuid, CUuuid);
#define VALUE(ours_value, theirs) static_assert(int(ours_value) == int(theirs), #theirs)
using ours::DeviceAttribute;
using ours::DriverResult;
VALUE(DriverResult::kInvalidValue, CUDA_ERROR_INVALID_VALUE);
VALUE(DriverResult::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
VALUE(DriverResult::kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
VALUE(DriverResult::kDeviceUnavailable, CUDA_ERROR_DEVICE_UNAVAILABLE);
VALUE(DriverResult::kNoDevice, CUDA_ERROR_NO_DEVICE);
VALUE(DriverResult::kInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
VALUE(DriverResult::kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
VALUE(DriverResult::kEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
VALUE(DriverResult::kNotReady, CUDA_ERROR_NOT_READY);
VALUE(DriverResult::kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
VALUE(DriverResult::kAssert, CUDA_ERROR_ASSERT);
VALUE(DriverResult::kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
VALUE(DriverResult::kNotPermitted, CUDA_ERROR_NOT_PERMITTED);
VALUE(DriverResult::kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
VALUE(DeviceAttribute::kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
VALUE(DeviceAttribute::kComputeMode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
VALUE(DeviceAttribute::kEccEnabled, CU_DEVICE_ATTRIBUTE_ECC_ENABLED);
VALUE(DeviceAttribute::kL2CacheSize, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
VALUE(DeviceAttribute::kAsyncEngineCount, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
VALUE(DeviceAttribute::kComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
VALUE(DeviceAttribute::kComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
VALUE(DeviceAttribute::kPageableMemoryAccess, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS);
VALUE(DeviceAttribute::kComputePreemptionSupported,
      CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED);
VALUE(DeviceAttribute::kHostRegisterSupported, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
VALUE(DeviceAttribute::kVirtualMemoryManagementSupported,
      CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
VALUE(DeviceAttribute::kPosixFileDescriptorSupported,
      CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
VALUE(DeviceAttribute::kGpuDirectRdmaWithVmmSupported,
      CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
VALUE(DeviceAttribute::kDmaBufSupported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
VALUE(DeviceAttribute::kFabricHandleSupported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
VALUE(DeviceAttribute::kMulticastSupported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);
VALUE(ours::PointerAttribute::kMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
VALUE(ours::PointerAttribute::kDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
VALUE(ours::kMemoryTypeHost, CU_MEMORYTYPE_HOST);
VALUE(ours::kMemoryTypeDevice, CU_MEMORYTYPE_DEVICE);
VALUE(ours::MemoryLocation().type, CU_MEM_LOCATION_TYPE_DEVICE);
VALUE(ours::AllocationProperties().type, CU_MEM_ALLOCATION_TYPE_PINNED);
VALUE(ours::kPosixFileDescriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
VALUE(ours::kMinimumGranularity, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
VALUE(ours::kReadOnly, CU_MEM_ACCESS_FLAGS_PROT_READ);
VALUE(ours::kReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
VALUE(ours::kNonBlockingStream, CU_STREAM_NON_BLOCKING);
VALUE(ours::kBlockingSync, CU_EVENT_BLOCKING_SYNC);
VALUE(ours::kDisableTiming, CU_EVENT_DISABLE_TIMING);
VALUE(ours::kHostRegisterPortable, CU_MEMHOSTREGISTER_PORTABLE);
"""
NVML = """
#include "launcher/topology/nvml_abi.h"
#include <nvml.h>
namespace ours = regroup::topology::nvml_abi;
SAME_LAYOUT(ours::PciInfo, nvmlPciInfo_t);
SAME_PLACE(ours::PciInfo, pci_device_id, nvmlPciInfo_t, pciDeviceId);
SAME_PLACE(ours::PciInfo, bus_id, nvmlPciInfo_t, busId);
SAME_LAYOUT(ours::Memory, nvmlMemory_t);
SAME_PLACE(ours::Memory, used, nvmlMemory_t, used);
SAME_LAYOUT(ours::Utilization, nvmlUtilization_t);
SAME_PLACE(ours::Utilization, gpu, nvmlUtilization_t, gpu);
SAME_LAYOUT(ours::ProcessInfo, nvmlProcessInfo_t);
SAME_PLACE(ours::ProcessInfo, used_memory, nvmlProcessInfo_t, usedGpuMemory);
SAME_LAYOUT(ours::ProcessUtilization, nvmlProcessUtilizationSample_t);
SAME_PLACE(ours::ProcessUtilization, sm, nvmlProcessUtilizationSample_t, smUtil);
static_assert(int(ours::kToSwitch) == NVML_NVLINK_DEVICE_TYPE_SWITCH);
static_assert(int(ours::kToNpu) == NVML_NVLINK_DEVICE_TYPE_IBMNPU);
#define CHECK(member, symbol) \\
  static_assert(Same<decltype(ours::Functions::member), decltype(&::symbol)>::value, #symbol)
CHECK(init, nvmlInit_v2);
CHECK(count, nvmlDeviceGetCount_v2);
CHECK(by_index, nvmlDeviceGetHandleByIndex_v2);
CHECK(by_uuid, nvmlDeviceGetHandleByUUID);
CHECK(pci, nvmlDeviceGetPciInfo_v3);
CHECK(name, nvmlDeviceGetName);
CHECK(memory, nvmlDeviceGetMemoryInfo);
CHECK(capability, nvmlDeviceGetCudaComputeCapability);
CHECK(link_state, nvmlDeviceGetNvLinkState);
CHECK(link_remote, nvmlDeviceGetNvLinkRemotePciInfo_v2);
CHECK(link_type, nvmlDeviceGetNvLinkRemoteDeviceType);
CHECK(mig_mode, nvmlDeviceGetMigMode);
CHECK(mig_by_index, nvmlDeviceGetMigDeviceHandleByIndex);
CHECK(utilization, nvmlDeviceGetUtilizationRates);
CHECK(power, nvmlDeviceGetPowerUsage);
CHECK(processes, nvmlDeviceGetComputeRunningProcesses_v3);
CHECK(process_utilization, nvmlDeviceGetProcessUtilization);
"""


def compiled(text: str, tmp_path: Path) -> subprocess.CompletedProcess:
    (package,) = importlib.util.find_spec("nvidia.cu13").submodule_search_locations
    source = tmp_path / "check.cc"
    source.write_text(SAME + text)
    folders = ["-I", str(ROOT), "-I", str(ROOT / "include"), "-isystem", f"{package}/include"]
    command = ["g++", "-std=c++20", "-fsyntax-only", *folders, str(source)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_declarations_of_cudas_driver_are_those_of_its_header(tmp_path):
    done = compiled(DRIVER, tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_declarations_of_nvml_are_those_of_its_header(tmp_path):
    done = compiled(NVML, tmp_path)
    assert done.returncode == 0, done.stderr


def test_another_prototype_is_refused(tmp_path):
    done = compiled(DRIVER.replace("&::symbol", "&::cuCtxGetCurrent", 1), tmp_path)
    assert done.returncode != 0
    assert "cuMemCreate" in done.stderr
