// The driver, its devices and contexts: cuInit to cuCtxGetDevice.
#include <algorithm>
#include <cstring>

#include "tests/fakes/cuda/context.h"
#include "tests/fakes/cuda/exports.h"

namespace regroup::fakes::cuda {
namespace {

constexpr struct {
  DriverResult result;
  const char* name;
  const char* text;
} kErrors[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {DriverResult::kDeviceUnavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {DriverResult::kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {DriverResult::kEccUncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE",
     "uncorrectable ECC error encountered"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {DriverResult::kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {kContextIsDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {DriverResult::kAssert, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {kAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {kNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {DriverResult::kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {DriverResult::kNotPermitted, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {kCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {kCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {kUnknown, "CUDA_ERROR_UNKNOWN", "unknown error"}};

// Of an H100.
constexpr struct {
  DeviceAttribute attribute;
  int value;
} kAttributes[] = {{DeviceAttribute::kMultiprocessorCount, 132},
                   {DeviceAttribute::kComputeMode, 0},
                   {DeviceAttribute::kEccEnabled, 1},
                   {DeviceAttribute::kL2CacheSize, 50 << 20},
                   {DeviceAttribute::kAsyncEngineCount, 3},
                   {DeviceAttribute::kComputeCapabilityMajor, 9},
                   {DeviceAttribute::kComputeCapabilityMinor, 0},
                   {DeviceAttribute::kPageableMemoryAccess, 0},
                   {DeviceAttribute::kComputePreemptionSupported, 1},
                   {DeviceAttribute::kHostRegisterSupported, 1},
                   {DeviceAttribute::kVirtualMemoryManagementSupported, 1},
                   {DeviceAttribute::kPosixFileDescriptorSupported, 1},
                   {DeviceAttribute::kGpuDirectRdmaWithVmmSupported, 1},
                   {DeviceAttribute::kDmaBufSupported, 1},
                   {DeviceAttribute::kFabricHandleSupported, 0},
                   {DeviceAttribute::kMulticastSupported, 0}};

DriverResult find_error(DriverResult result, const char** out, bool name) {
  const auto* error =
      std::ranges::find(kErrors, result, [](const auto& row) { return row.result; });
  if (out == nullptr) return kInvalidValue;
  *out = nullptr;
  if (error == std::end(kErrors)) return kInvalidValue;
  *out = name ? error->name : error->text;
  return kSuccess;
}

// For what only asks what a device is: the error of a context is none of it.
DriverResult find_device(DeviceIndex device, const void* out, Machine*& machine) {
  DriverResult why = kSuccess;
  machine = Machine::get(why);
  if (machine == nullptr) return why;
  if (out == nullptr) return kInvalidValue;
  return machine->has(device) ? kSuccess : kInvalidDevice;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's
DriverResult cuInit(unsigned flags) { return flags != 0 ? kInvalidValue : Machine::start(); }

DriverResult cuDriverGetVersion(int* version) {
  if (version == nullptr) return kInvalidValue;
  DriverResult why = kSuccess;
  const Machine* machine = Machine::get(why);
  *version = int(machine == nullptr ? Settings().driver : machine->settings.driver);
  return kSuccess;
}

DriverResult cuGetErrorName(DriverResult result, const char** name) {
  return find_error(result, name, true);
}

DriverResult cuGetErrorString(DriverResult result, const char** text) {
  return find_error(result, text, false);
}

DriverResult cuDeviceGetCount(int* count) {
  Machine* machine = nullptr;
  const DriverResult result = find_device(0, count, machine);
  if (result == kSuccess) *count = int(machine->settings.devices);
  return result;
}

DriverResult cuDeviceGet(DeviceIndex* device, int ordinal) {
  Machine* machine = nullptr;
  const DriverResult result = find_device(ordinal, device, machine);
  if (result == kSuccess) *device = ordinal;
  return result;
}

DriverResult cuDeviceGetName(char* name, int length, DeviceIndex device) {
  Machine* machine = nullptr;
  const DriverResult result = find_device(device, name, machine);
  if (result != kSuccess) return result;
  if (length < 1) return kInvalidValue;
  const std::size_t kept = machine->settings.name.copy(name, std::size_t(length) - 1);
  name[kept] = '\0';
  return kSuccess;
}

DriverResult cuDeviceGetUuid(DeviceUuid* uuid, DeviceIndex device) {
  Machine* machine = nullptr;
  const DriverResult result = find_device(device, uuid, machine);
  if (result != kSuccess) return result;
  *uuid = machine->settings.uuid;
  auto& last = uuid->bytes[sizeof uuid->bytes - 1];
  last = static_cast<unsigned char>(last + device);
  return kSuccess;
}

DriverResult cuDeviceGetUuid_v2(DeviceUuid* uuid, DeviceIndex device) {
  const DriverResult result = cuDeviceGetUuid(uuid, device);
  if (result == kSuccess && Machine::running().settings.mig) uuid->bytes[0] ^= 0x80;
  return result;
}

DriverResult cuDeviceGetAttribute(int* value, DeviceAttribute attribute, DeviceIndex device) {
  Machine* machine = nullptr;
  const DriverResult result = find_device(device, value, machine);
  if (result != kSuccess) return result;
  const auto* row =
      std::ranges::find(kAttributes, attribute, [](const auto& known) { return known.attribute; });
  if (row == std::end(kAttributes)) return kInvalidValue;
  *value = row->value;
  if (attribute == DeviceAttribute::kPosixFileDescriptorSupported)
    *value = int(machine->settings.descriptors);
  return kSuccess;
}

DriverResult cuDeviceTotalMem_v2(std::size_t* bytes, DeviceIndex device) {
  Machine* machine = nullptr;
  const DriverResult result = find_device(device, bytes, machine);
  if (result == kSuccess) *bytes = machine->settings.memory;
  return result;
}

DriverResult cuDeviceCanAccessPeer(int* can, DeviceIndex device, DeviceIndex peer) {
  Machine* machine = nullptr;
  const DriverResult result = find_device(device, can, machine);
  if (result != kSuccess) return result;
  if (!machine->has(peer)) return kInvalidDevice;
  *can = int(machine->settings.peers && device != peer);
  return kSuccess;
}

DriverResult cuDevicePrimaryCtxRetain(Context* context, DeviceIndex device) {
  Machine* machine = nullptr;
  const DriverResult result = find_device(device, context, machine);
  if (result != kSuccess) return result;
  if (machine->lost(device)) return kUnknown;
  ContextState* state = nullptr;
  const DriverResult retained = retain_primary(device, state);
  *context = reinterpret_cast<Context>(state);
  return retained;
}

DriverResult cuDevicePrimaryCtxRelease_v2(DeviceIndex device) {
  Machine* machine = nullptr;
  const DriverResult result = find_device(device, &device, machine);
  return result != kSuccess ? result : release_primary(device);
}

DriverResult cuCtxSetCurrent(Context context) {
  DriverResult why = kSuccess;
  if (Machine::get(why) == nullptr) return why;
  auto* state = reinterpret_cast<ContextState*>(context);
  if (state != nullptr && state->result() == kContextIsDestroyed) return kInvalidContext;
  current_context() = state;
  return kSuccess;
}

DriverResult cuCtxGetCurrent(Context* context) {
  DriverResult why = kSuccess;
  if (Machine::get(why) == nullptr) return why;
  if (context == nullptr) return kInvalidValue;
  *context = reinterpret_cast<Context>(current_context());
  return kSuccess;
}

DriverResult cuCtxGetDevice(DeviceIndex* device) {
  DriverResult why = kSuccess;
  if (Machine::get(why) == nullptr) return why;
  if (device == nullptr) return kInvalidValue;
  const ContextState* context = current_context();
  if (context == nullptr) return kInvalidContext;
  *device = context->device;
  return kSuccess;
}

// NOLINTEND(readability-identifier-naming)

}  // namespace regroup::fakes::cuda
