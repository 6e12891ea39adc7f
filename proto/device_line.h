// Device lines: memory of a GPU that no member owns, one for each member with gradients there. The
// messages that create one and hand its descriptor out. docs/design/device_memory.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "proto/world.h"

namespace regroup::proto {

inline constexpr std::uint32_t kMaxLeafBuffers = 32;  // of a device line
using DeviceLineId = std::uint64_t;                   // of an agent; never used again

// Agent -> member; the member in `slot` has this line, whose descriptor comes as ancillary data, or
// none (line 0, no descriptor). What was said of slot and line before is void. Layout: leaf_buffers
// leaf buffers, then the slice, each at a multiple of kDeviceAlignment.
struct DeviceLine {
  DeviceLineId line = 0;
  SlotIndex slot = 0;
  std::string gpu;  // UUID
  std::uint64_t leaf_bytes = 0;
  std::uint32_t leaf_buffers = 0;
  std::uint64_t slice_bytes = 0;  // of the sum, which this member writes for all members
  std::uint64_t bytes = 0;        // of the memory, a multiple of the device's granularity
  bool operator==(const DeviceLine&) const = default;

  static constexpr std::uint64_t kDeviceAlignment = 512;
  [[nodiscard]] static constexpr std::uint64_t aligned(std::uint64_t bytes) {
    return (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
  }
  [[nodiscard]] std::uint64_t leaf_offset(std::uint32_t buffer) const {
    return buffer * aligned(leaf_bytes);
  }
  [[nodiscard]] std::uint64_t slice_offset() const { return leaf_offset(leaf_buffers); }
  // Bytes that the parts need; `bytes` is at least that.
  [[nodiscard]] std::uint64_t needed() const { return slice_offset() + aligned(slice_bytes); }
};

// Agent -> regroup-devices.
struct AllocateDeviceMemory {
  std::uint64_t request = 0;  // repeated in the answer
  std::string gpu;            // UUID
  std::uint64_t bytes = 0;    // rounded up to the device's granularity
  bool operator==(const AllocateDeviceMemory&) const = default;
};

// regroup-devices -> agent; carries the descriptor of the memory as ancillary data if `why` is "".
struct DeviceMemory {
  std::uint64_t request = 0;
  std::uint64_t bytes = 0;   // rounded up
  std::uint32_t device = 0;  // the number of the GPU on this host
  bool full = false;         // the device has not that much memory left
  std::string why;           // why there is none
  bool operator==(const DeviceMemory&) const = default;
};

}  // namespace regroup::proto
