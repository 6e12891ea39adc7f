// Gradients and sums of a session on a CUDA device, over host memory: the data plane "staged".
// The caller fills a leaf on the device, which is then copied to this member's buffer in the arena;
// the sum over all leaves is copied back. So the arithmetic, and what a member's death leaves
// behind, are those of the host. docs/design/staged_plane.md.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "elastic/device_stream.h"

namespace regroup::elastic {

class DeviceStaging {
 public:
  // Allocates a leaf and a sum of `bytes` bytes on the device of `stream`. `sum`: memory of the
  // caller for the sum instead, which outlives this object; null: none. kResourceExhausted: not
  // enough memory there.
  [[nodiscard]] static base::Result<std::unique_ptr<DeviceStaging>> open(
      std::unique_ptr<DeviceStream> stream, std::size_t bytes, void* sum);
  ~DeviceStaging();
  DeviceStaging(const DeviceStaging&) = delete;
  DeviceStaging& operator=(const DeviceStaging&) = delete;

  // Pins host memory, so that copies to and from it need no detour. Memory that cannot be pinned
  // works as well, more slowly. It must stay mapped as long as this object.
  void pin(std::span<std::byte> host);
  [[nodiscard]] const DeviceStream& stream() const { return *stream_; }
  [[nodiscard]] base::Status change_stream(void* stream) { return stream_->change_stream(stream); }
  // The leaf, in memory of the device.
  [[nodiscard]] std::span<std::byte> leaf() const;
  // Copies the leaf to `host`. Errors as of DeviceStream.
  [[nodiscard]] base::Status copy_leaf_to(std::span<std::byte> host) const {
    return stream_->copy_to_host(host, leaf_);
  }
  // The sum, in memory of the device; and a copy of it in `host`.
  [[nodiscard]] std::span<std::byte> sum() const;
  [[nodiscard]] base::Status copy_sum_to(std::span<std::byte> host) const {
    return stream_->copy_to_host(host, sum_);
  }
  // Copies `host` to the sum, in memory of the device, and returns that, which is valid until the
  // next call.
  [[nodiscard]] base::Result<std::span<const std::byte>> copy_sum(
      std::span<const std::byte> host) const;

 private:
  DeviceStaging(std::unique_ptr<DeviceStream> stream, std::size_t bytes)
      : stream_(std::move(stream)), bytes_(bytes) {}

  const std::unique_ptr<DeviceStream> stream_;
  const std::size_t bytes_;
  collective::cuda::DevicePointer leaf_ = 0;
  collective::cuda::DevicePointer sum_ = 0;
  bool owns_sum_ = true;
  std::vector<void*> pinned_;
};

}  // namespace regroup::elastic
