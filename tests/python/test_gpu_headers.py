"""The layouts and prototypes that the sources declare for CUDA's driver, NVML and NCCL are those of
NVIDIA's headers. The product includes none of them, so that it builds without them."""

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
#include "base/nvml_abi.h"
#include <nvml.h>
namespace ours = regroup::base::nvml_abi;
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
CHECK(ecc_errors, nvmlDeviceGetTotalEccErrors);
CHECK(remapped_rows, nvmlDeviceGetRemappedRows);
CHECK(field_values, nvmlDeviceGetFieldValues);
CHECK(clock_reasons, nvmlDeviceGetCurrentClocksEventReasons);
SAME_LAYOUT(ours::FieldValue, nvmlFieldValue_t);
SAME_PLACE(ours::FieldValue, result, nvmlFieldValue_t, nvmlReturn);
SAME_PLACE(ours::FieldValue, value, nvmlFieldValue_t, value);
SAME_LAYOUT(ours::Value, nvmlValue_t);
static_assert(ours::kRecoveryAction == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION);
static_assert(ours::kUncorrected == NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
static_assert(ours::kSinceDriverLoaded == NVML_VOLATILE_ECC);
static_assert(ours::kThermalSlowdown == nvmlClocksThrottleReasonHwThermalSlowdown);
static_assert(ours::kPowerBrake == nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
"""


# Of CUDA's runtime its header needs cudaStream_t only.
NCCL = """
#include "collective/nccl/library.h"
#include <nccl.h>
namespace ours = regroup::collective::nccl;
#define CHECK(member, symbol, ...) \\
  static_assert(Same<decltype(ours::Library::member), decltype(&::symbol)>::value, #symbol);
REGROUP_NCCL_FUNCTIONS(CHECK)
REGROUP_NCCL_OPTIONAL_FUNCTIONS(CHECK)
SAME_LAYOUT(ours::UniqueId, ncclUniqueId);
static_assert(offsetof(ours::Config, split_share) < sizeof(ncclConfig_t));
SAME_PLACE(ours::Config, size, ncclConfig_t, size);
SAME_PLACE(ours::Config, magic, ncclConfig_t, magic);
SAME_PLACE(ours::Config, version, ncclConfig_t, version);
SAME_PLACE(ours::Config, blocking, ncclConfig_t, blocking);
SAME_PLACE(ours::Config, cga_cluster_size, ncclConfig_t, cgaClusterSize);
SAME_PLACE(ours::Config, min_ctas, ncclConfig_t, minCTAs);
SAME_PLACE(ours::Config, max_ctas, ncclConfig_t, maxCTAs);
SAME_PLACE(ours::Config, net_name, ncclConfig_t, netName);
SAME_PLACE(ours::Config, split_share, ncclConfig_t, splitShare);
#define VALUE(ours_value, theirs) static_assert(int(ours_value) == int(theirs), #theirs)
VALUE(ours::Config().magic, NCCL_API_MAGIC);
VALUE(ours::kUndefined, NCCL_CONFIG_UNDEF_INT);
VALUE(ours::Result::kUnhandledCudaError, ncclUnhandledCudaError);
VALUE(ours::Result::kSystemError, ncclSystemError);
VALUE(ours::Result::kInternalError, ncclInternalError);
VALUE(ours::Result::kInvalidArgument, ncclInvalidArgument);
VALUE(ours::Result::kInvalidUsage, ncclInvalidUsage);
VALUE(ours::Result::kRemoteError, ncclRemoteError);
VALUE(ours::Result::kInProgress, ncclInProgress);
VALUE(ours::DataType::kInt8, ncclInt8);
VALUE(ours::DataType::kUint8, ncclUint8);
VALUE(ours::DataType::kInt32, ncclInt32);
VALUE(ours::DataType::kInt64, ncclInt64);
VALUE(ours::DataType::kUint64, ncclUint64);
VALUE(ours::DataType::kFloat16, ncclFloat16);
VALUE(ours::DataType::kFloat32, ncclFloat32);
VALUE(ours::DataType::kFloat64, ncclFloat64);
VALUE(ours::DataType::kBfloat16, ncclBfloat16);
VALUE(ours::Reduction::kSum, ncclSum);
VALUE(ours::Reduction::kProduct, ncclProd);
VALUE(ours::Reduction::kMax, ncclMax);
VALUE(ours::Reduction::kMin, ncclMin);
"""


def folder_of(package: str, header: str) -> str | None:
    found = importlib.util.find_spec(package)
    places = [] if found is None else found.submodule_search_locations
    folders = (Path(place) / "include" for place in places)
    return next((str(folder) for folder in folders if (folder / header).exists()), None)


def compiled(text: str, tmp_path: Path, *more: str) -> subprocess.CompletedProcess:
    source = tmp_path / "check.cc"
    source.write_text(SAME + text)
    folders = ["-I", str(tmp_path), "-I", str(ROOT), "-I", str(ROOT / "include")]
    for folder in (folder_of("nvidia.cu13", "cuda.h"), *more):
        folders += ["-isystem", folder]
    command = ["g++", "-std=c++20", "-fsyntax-only", *folders, str(source)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_declarations_of_cudas_driver_are_those_of_its_header(tmp_path):
    done = compiled(DRIVER, tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_declarations_of_nvml_are_those_of_its_header(tmp_path):
    done = compiled(NVML, tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_declarations_of_nccl_are_those_of_its_header(tmp_path):
    """The header comes with the library only, in a package of 200 MB."""
    folder = folder_of("nvidia.nccl", "nccl.h")
    assert folder is not None, "nvidia-nccl-cu13 is not installed"
    (tmp_path / "cuda_runtime.h").write_text("typedef struct CUstream_st* cudaStream_t;")
    (tmp_path / "cuda_fp16.h").write_text("")
    done = compiled(NCCL, tmp_path, folder)
    assert done.returncode == 0, done.stderr
    other = compiled(NCCL.replace("magic);", "version);", 1), tmp_path, folder)
    assert other.returncode != 0
    assert "ncclConfig_t.version" in other.stderr


def test_another_prototype_is_refused(tmp_path):
    done = compiled(DRIVER.replace("&::symbol", "&::cuCtxGetCurrent", 1), tmp_path)
    assert done.returncode != 0
    assert "cuMemCreate" in done.stderr
