// Maps a device line. The handle of the import is released at once: the mapping keeps the memory.
#include "collective/cuda/device_line.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

namespace regroup::collective::cuda {

using base::Result;
using base::Status;

Result<MappedLine> MappedLine::map(const Driver& driver, int descriptor, std::size_t bytes,
                                   DeviceIndex device, Access access, const std::string& name) {
  const auto check = [&](DriverResult result, const char* call) {
    if (result == DriverResult::kSuccess) return Status();
    return driver.status(result,
                         fmt::format("{}: {} of {} bytes for GPU {}", name, call, bytes, device));
  };
  Allocation memory = 0;
  void* const handle = reinterpret_cast<void*>(std::intptr_t(descriptor));
  REGROUP_RETURN_IF_ERROR(check(driver.allocation_import(&memory, handle, kPosixFileDescriptor),
                                "cuMemImportFromShareableHandle"));
  MappedLine line;
  line.driver_ = driver;
  line.bytes_ = bytes;
  Status status = check(driver.address_reserve(&line.base_, bytes, 0, 0, 0), "cuMemAddressReserve");
  line.reserved_ = status.ok();
  if (status.ok()) {
    status = check(driver.map(line.base_, bytes, 0, memory, 0), "cuMemMap");
    line.mapped_ = status.ok();
  }
  static_cast<void>(driver.allocation_release(memory));
  REGROUP_RETURN_IF_ERROR(status);
  const AccessDescription description{
      .location = {.device = device},
      .access = access == Access::kReadWrite ? kReadWrite : kReadOnly};
  REGROUP_RETURN_IF_ERROR(
      check(driver.set_access(line.base_, bytes, &description, 1), "cuMemSetAccess"));
  return line;
}

MappedLine::MappedLine(MappedLine&& other) noexcept { *this = std::move(other); }

MappedLine& MappedLine::operator=(MappedLine&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(reserved_, other.reserved_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

// After an error of the device these calls fail, and the end of the process frees everything.
MappedLine::~MappedLine() {
  if (mapped_) static_cast<void>(driver_.unmap(base_, bytes_));
  if (reserved_) static_cast<void>(driver_.address_free(base_, bytes_));
}

}  // namespace regroup::collective::cuda
