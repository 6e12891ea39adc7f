// What a DeviceReducer needs of other hosts: the sum of one slice over all hosts, of which each
// holds some nodes of the canonical tree (collective/nccl).
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/clock.h"
#include "base/status.h"
#include "collective/cuda/driver.h"
#include "collective/tree_reducer.h"

namespace regroup::collective::cuda {

// Used by the thread of the reducer, with its context current.
class HostExchange {
 public:
  // Bytes begin .. begin + bytes of a sum.
  struct Slice {
    std::span<const Partial> partials;  // of this host
    std::uint32_t leaves = 0;           // of all hosts
    std::size_t begin = 0;
    std::size_t bytes = 0;
    DevicePointer to = 0;  // at a multiple of 16 bytes
    Dtype dtype = Dtype::kFloat32;
    Stream stream = nullptr;
    base::TimePoint deadline;
    const std::function<base::Status()>& check;  // why to stop waiting
  };

  virtual ~HostExchange() = default;
  // Into how many slices a sum is divided, the same on all hosts: one for each of the first
  // slices() GPUs of the host.
  [[nodiscard]] virtual int slices() const = 0;
  // Puts on the stream what writes the slice. Waits for other hosts at most until they have called
  // sum() too.
  [[nodiscard]] virtual base::Status sum(const Slice& slice) = 0;
  // Why work that sum() has put on a stream will not be done; ok: it may be.
  [[nodiscard]] virtual base::Status status() = 0;
  // Ends the work that waits for other hosts; no sum() follows. kDeadlineExceeded: it could not.
  [[nodiscard]] virtual base::Status stop() = 0;
};

}  // namespace regroup::collective::cuda
