// Memory: cuMemGetInfo to cuMemHostUnregister, and cuMemGetAllocationGranularity to cuMemSetAccess.
#include <fcntl.h>

#include "tests/fakes/cuda/exports.h"
#include "tests/fakes/cuda/memory.h"

namespace regroup::fakes::cuda {
namespace {

// What is wrong with the location of memory, or of an access to it.
DriverResult check(const Machine& machine, const MemoryLocation& location) {
  if (location.type != 1) return kInvalidValue;
  if (!machine.has(location.device)) return kInvalidDevice;
  return machine.lost(location.device) ? kUnknown : kSuccess;
}

DriverResult check(const Machine& machine, const AllocationProperties* properties) {
  if (properties == nullptr || properties->type != 1) return kInvalidValue;
  if (properties->handle_types == kPosixFileDescriptor) {
    if (!machine.settings.descriptors) return kNotSupported;
  } else if (properties->handle_types != 0) {
    return kNotSupported;
  }
  return check(machine, properties->location);
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's
DriverResult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  Machine* machine = nullptr;
  ContextState* context = nullptr;
  const DriverResult result = enter(machine, context);
  if (result != kSuccess) return result;
  if (free == nullptr || total == nullptr) return kInvalidValue;
  *free = machine->settings.memory - machine->used(context->device);
  *total = machine->settings.memory;
  return kSuccess;
}

DriverResult cuMemAlloc_v2(DevicePointer* out, std::size_t bytes) {
  Machine* machine = nullptr;
  ContextState* context = nullptr;
  const DriverResult result = enter(machine, context);
  if (result != kSuccess) return result;
  if (out == nullptr) return kInvalidValue;
  if (machine->next_allocation().kind != FaultKind::kNone) return kOutOfMemory;
  return memory().allocate(*context, bytes, *out);
}

// Waits for all work, as CUDA does in effect.
DriverResult cuMemFree_v2(DevicePointer at) {
  Machine* machine = nullptr;
  ContextState* context = nullptr;
  const DriverResult result = enter(machine, context);
  if (result != kSuccess) return result;
  if (at == 0) return kSuccess;
  const DriverResult finished = context->wait_for_all();
  return finished != kSuccess ? finished : memory().free(at);
}

DriverResult cuPointerGetAttribute(void* out, PointerAttribute attribute, DevicePointer at) {
  Machine* machine = nullptr;
  ContextState* context = nullptr;
  const DriverResult result = enter(machine, context);
  if (result != kSuccess) return result;
  const Range range = memory().range_of(at, 1, context->device);
  const bool on_device = range.kind == Range::Kind::kDevice;
  if (out == nullptr || (!on_device && range.kind != Range::Kind::kRegistered))
    return kInvalidValue;
  switch (attribute) {
    case PointerAttribute::kMemoryType:
      *static_cast<unsigned*>(out) = on_device ? kMemoryTypeDevice : kMemoryTypeHost;
      return kSuccess;
    case PointerAttribute::kDeviceOrdinal:
      *static_cast<int*>(out) = range.device;
      return kSuccess;
  }
  return kInvalidValue;
}

DriverResult cuMemHostRegister_v2(void* at, std::size_t bytes, unsigned flags) {
  Machine* machine = nullptr;
  ContextState* context = nullptr;
  const DriverResult result = enter(machine, context);
  if (result != kSuccess) return result;
  if ((flags & ~0xfU) != 0) return kInvalidValue;
  return memory().add_registered(*context, at, bytes);
}

DriverResult cuMemHostUnregister(void* at) {
  Machine* machine = nullptr;
  ContextState* context = nullptr;
  const DriverResult result = enter(machine, context);
  return result != kSuccess ? result : memory().remove_registered(at);
}

DriverResult cuMemGetAllocationGranularity(std::size_t* granularity,
                                           const AllocationProperties* properties, int option) {
  Machine* machine = nullptr;
  const DriverResult result = enter(machine);
  if (result != kSuccess) return result;
  if (granularity == nullptr || option < 0 || option > 1) return kInvalidValue;
  const DriverResult checked = check(*machine, properties);
  if (checked == kSuccess) *granularity = kGranularity;
  return checked;
}

DriverResult cuMemCreate(Allocation* out, std::size_t bytes, const AllocationProperties* properties,
                         unsigned long long flags) {
  Machine* machine = nullptr;
  const DriverResult result = enter(machine);
  if (result != kSuccess) return result;
  if (out == nullptr || flags != 0 || bytes == 0 || bytes % kGranularity != 0) return kInvalidValue;
  const DriverResult checked = check(*machine, properties);
  if (checked != kSuccess) return checked;
  if (machine->next_allocation().kind != FaultKind::kNone) return kOutOfMemory;
  DriverResult why = kSuccess;
  auto made =
      DeviceMemory::create(properties->location.device, bytes, properties->handle_types != 0, why);
  if (made != nullptr) *out = memory().add_handle(std::move(made));
  return why;
}

DriverResult cuMemRelease(Allocation handle) {
  Machine* machine = nullptr;
  const DriverResult result = enter(machine);
  return result != kSuccess ? result : memory().remove_handle(handle);
}

// The caller owns the descriptor.
DriverResult cuMemExportToShareableHandle(void* out, Allocation handle, int type,
                                          unsigned long long flags) {
  Machine* machine = nullptr;
  const DriverResult result = enter(machine);
  if (result != kSuccess) return result;
  const auto found = memory().find_handle(handle);
  if (out == nullptr || found == nullptr || flags != 0 || !found->exportable())
    return kInvalidValue;
  if (type != kPosixFileDescriptor) return kNotSupported;
  const int copy = ::fcntl(found->file(), F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return kOutOfMemory;
  *static_cast<int*>(out) = copy;
  return kSuccess;
}

DriverResult cuMemImportFromShareableHandle(Allocation* out, void* handle, int type) {
  Machine* machine = nullptr;
  const DriverResult result = enter(machine);
  if (result != kSuccess) return result;
  if (out == nullptr) return kInvalidValue;
  if (type != kPosixFileDescriptor || !machine->settings.import) return kNotSupported;
  DriverResult why = kSuccess;
  auto imported = DeviceMemory::import(int(reinterpret_cast<std::intptr_t>(handle)), why);
  if (imported == nullptr) return why;
  if (machine->lost(imported->device())) return kUnknown;
  *out = memory().add_handle(std::move(imported));
  return kSuccess;
}

DriverResult cuMemAddressReserve(DevicePointer* out, std::size_t bytes, std::size_t alignment,
                                 DevicePointer wanted, unsigned long long flags) {
  Machine* machine = nullptr;
  const DriverResult result = enter(machine);
  if (result != kSuccess) return result;
  if (out == nullptr || flags != 0) return kInvalidValue;
  return memory().reserve(bytes, alignment, wanted, *out);
}

DriverResult cuMemAddressFree(DevicePointer at, std::size_t bytes) {
  Machine* machine = nullptr;
  const DriverResult result = enter(machine);
  return result != kSuccess ? result : memory().free_reserved(at, bytes);
}

DriverResult cuMemMap(DevicePointer at, std::size_t bytes, std::size_t offset, Allocation handle,
                      unsigned long long flags) {
  Machine* machine = nullptr;
  const DriverResult result = enter(machine);
  if (result != kSuccess) return result;
  return offset != 0 || flags != 0 ? kInvalidValue : memory().map(at, bytes, handle);
}

// Waits for all work of the process, as CUDA does in effect.
DriverResult cuMemUnmap(DevicePointer at, std::size_t bytes) {
  Machine* machine = nullptr;
  const DriverResult result = enter(machine);
  if (result != kSuccess) return result;
  wait_for_all_contexts();
  return memory().unmap(at, bytes);
}

DriverResult cuMemSetAccess(DevicePointer at, std::size_t bytes,
                            const AccessDescription* descriptions, std::size_t count) {
  Machine* machine = nullptr;
  const DriverResult result = enter(machine);
  if (result != kSuccess) return result;
  if (descriptions == nullptr || count == 0) return kInvalidValue;
  for (const AccessDescription* one = descriptions; one != descriptions + count; ++one) {
    if (one->access != 0 && one->access != kReadOnly && one->access != kReadWrite)
      return kInvalidValue;
    DriverResult done = check(*machine, one->location);
    if (done == kSuccess) done = memory().set_access(at, bytes, one->location.device, one->access);
    if (done != kSuccess) return done;
  }
  return kSuccess;
}

// NOLINTEND(readability-identifier-naming)

}  // namespace regroup::fakes::cuda
