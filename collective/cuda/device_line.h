// A device line in the addresses of this process: memory of a GPU that no member owns, with the
// leaf buffers and the slice of one member (docs/design/cuda_plane.md). It outlives the processes
// that map it, as long as the agent has its descriptor.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"
#include "collective/cuda/driver.h"

namespace regroup::collective::cuda {

// Movable; the memory of a default object is empty.
class MappedLine {
 public:
  // Its owner writes a line and all others read it: a kernel or copy that stores to another
  // member's line fails in the process that launched it.
  enum class Access { kReadOnly, kReadWrite };

  // Maps the memory behind `descriptor`, which stays the caller's and may be closed afterwards, for
  // kernels and copies of `device`. `bytes`: of the memory, a multiple of the device's granularity.
  // `name` is for messages: "the device line of slot 3". Needs no context. Errors are the driver's,
  // "NAME: cuMemMap of 4194304 bytes for GPU 0: ...": kUnavailable if the device has no memory of
  // this kind, kInvalidArgument if the descriptor, the size or the device is wrong.
  [[nodiscard]] static base::Result<MappedLine> map(const Driver& driver, int descriptor,
                                                    std::size_t bytes, DeviceIndex device,
                                                    Access access, const std::string& name);

  MappedLine() = default;
  MappedLine(MappedLine&& other) noexcept;
  MappedLine& operator=(MappedLine&& other) noexcept;
  MappedLine(const MappedLine&) = delete;
  MappedLine& operator=(const MappedLine&) = delete;
  // Unmaps. Blocks until all work of this process on the device is done.
  ~MappedLine();

  // The address of byte `offset`.
  [[nodiscard]] DevicePointer at(std::size_t offset) const { return base_ + offset; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  // Keeps the memory mapped until the process ends: for a device that does not answer.
  void abandon() { mapped_ = false, reserved_ = false; }

 private:
  Driver driver_;
  DevicePointer base_ = 0;
  std::size_t bytes_ = 0;
  bool reserved_ = false;  // of the two steps back, which there are
  bool mapped_ = false;
};

}  // namespace regroup::collective::cuda
