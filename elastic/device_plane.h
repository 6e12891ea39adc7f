// Plane cuda of a session: leaf buffers in this member's device line, seals that follow the work
// that fills them, and the sum of all members' leaves on the GPU. docs/design/cuda_plane.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/cuda/device_kernels.h"
#include "collective/cuda/device_line.h"
#include "collective/cuda/device_reducer.h"
#include "collective/cuda/device_scratch.h"
#include "collective/cuda/tree_plan.h"
#include "collective/cuda/watcher.h"
#include "collective/nccl/rail_sums.h"
#include "elastic/device_stream.h"
#include "elastic/participant.h"
#include "elastic/sealed_sums.h"
#include "proto/member_state.h"
#include "regroup/operation.h"

namespace regroup::elastic {

// Training thread only, with the context of the stream current. After an error of the device or a
// wait that took too long every call fails.
class DevicePlane {
 public:
  using Kernels = collective::cuda::DeviceKernels;
  // Maps the device line of this member. Errors are the driver's.
  [[nodiscard]] static base::Result<collective::cuda::MappedLine> map_own(
      const DeviceStream& stream, const ReceivedLines::Line& line);
  // For a member with a device line, mapped as `own`: starts the watcher.
  // `leaf_bytes`: of a gradient. `stream` and `self` must outlive this object. Errors are the
  // driver's.
  [[nodiscard]] static base::Result<std::unique_ptr<DevicePlane>> open(
      const DeviceStream& stream, Participant& self, Kernels kernels,
      collective::cuda::MappedLine own, collective::Dtype dtype, std::size_t leaf_bytes);
  ~DevicePlane();
  DevicePlane(const DevicePlane&) = delete;
  DevicePlane& operator=(const DevicePlane&) = delete;

  // Leaf buffer `buffer` of this member, in memory of the device.
  [[nodiscard]] std::span<std::byte> leaf(std::uint32_t buffer) const;
  // Stores the seal of the buffer once the work that is on the stream now is done.
  [[nodiscard]] base::Status seal(std::uint32_t buffer, proto::Seal seal);
  // Withdraws the seal of the buffer; one that waits for its work is not stored any more.
  void withdraw(std::uint32_t buffer);
  // Withdraws the seal of `right`, puts on the stream that leaf buffer `left` is added to it as the
  // left operand, and stores `seal` when that is done.
  [[nodiscard]] base::Status add(std::uint32_t left, std::uint32_t right, proto::Seal seal);
  // Puts on the stream that the leaf becomes zeros.
  [[nodiscard]] base::Status clear(std::span<std::byte> leaf);

  // Copies a sum between leaf buffer `buffer` of the member in `slot` and its buffer in the arena.
  // Blocks until that is done.
  [[nodiscard]] base::Status copy_to_arena(proto::SlotIndex slot, std::uint32_t buffer);
  [[nodiscard]] base::Status copy_from_arena(std::uint32_t buffer);  // of this member
  // True if this member is the one of its World and host that copies sums to the arena of which no
  // other living member is the owner.
  [[nodiscard]] bool copies_for_all();

  // Call in each World before reduce(), if its plane is cuda or nccl: maps the lines of its members
  // on this host. With members on other hosts, connect_hosts() must follow.
  [[nodiscard]] base::Status enter();
  // Before a communicator of this member's rail is begun: reserves what sums in this World take
  // beside the lines. Returns memory for CommSpec::bytes. kResourceExhausted: the device lacks it.
  [[nodiscard]] base::Result<collective::cuda::DevicePointer> reserve_hosts(int rails, int rail,
                                                                            int host, int hosts);
  // `comm`: of this member's rail, ready; null: it is on none. Other arguments as of RailSums.
  void connect_hosts(int rails, int host, int hosts, std::unique_ptr<collective::nccl::Comm> comm,
                     base::Duration error_limit);
  // At the end of the World.
  void disconnect_hosts();
  // Ok, or why the GPU of this member is of no use any more.
  [[nodiscard]] base::Status answers() const;
  // Sums all leaves into `result`, memory of the device that belongs to this process, behind work
  // of the stream that may read it still. Sums that lie in the arena are copied to the device
  // first. `owners`: of the leaves. Errors as of TreeReducer.
  [[nodiscard]] base::Status reduce(std::span<const SealedSum> sums,
                                    const std::vector<proto::SlotId>& owners,
                                    collective::Output result, base::TimePoint deadline);
  // The first failure of work that a seal waits for.
  [[nodiscard]] base::Status status() const { return watcher_->status(); }
  // After a wait for seals that took too long: why this member's own are not there; ok: they are.
  // After kDeadlineExceeded the end of the plane does not wait for the GPU.
  [[nodiscard]] base::Status overdue() const;

 private:
  using Driver = collective::cuda::Driver;
  using DevicePointer = collective::cuda::DevicePointer;

  DevicePlane(const DeviceStream& stream, Participant& self, Kernels kernels,
              collective::Dtype dtype, std::size_t leaf_bytes)
      : stream_(stream),
        driver_(stream.driver()),
        self_(self),
        kernels_(std::move(kernels)),
        dtype_(dtype),
        bytes_(leaf_bytes) {}
  [[nodiscard]] base::Status prepare(collective::cuda::MappedLine own);
  struct Line {
    collective::cuda::MappedLine memory;
    proto::DeviceLine line;
  };
  // The line of the member in `slot`, mapped.
  [[nodiscard]] base::Result<const Line*> map(proto::SlotIndex slot);
  [[nodiscard]] base::Status unmap_lost_lines();
  [[nodiscard]] base::Result<DevicePointer> buffer_of(proto::SlotIndex slot, std::uint32_t buffer);
  [[nodiscard]] base::Result<DevicePointer> upload(const SealedSum& sum, std::size_t number);
  [[nodiscard]] collective::cuda::Mark mark_of(std::uint32_t buffer, proto::Seal seal) const;
  [[nodiscard]] std::atomic<std::uint64_t>& seal_word(std::uint32_t buffer) const;

  const DeviceStream& stream_;
  const Driver& driver_;
  Participant& self_;
  const Kernels kernels_;
  const collective::Dtype dtype_;
  const std::size_t bytes_;
  collective::cuda::TreePlan pair_;  // left operand + right operand
  std::unique_ptr<collective::cuda::Watcher> watcher_;
  collective::cuda::Stream sums_ = nullptr;  // for sums of all members alone
  std::map<proto::DeviceLineId, Line> lines_;
  const Line* own_ = nullptr;
  std::unique_ptr<collective::cuda::DeviceScratch> scratch_;
  std::vector<DevicePointer> uploads_;  // copies of sums of the dead that lie in the arena
  void make_reducer();

  collective::cuda::DeviceReducerSpec reduced_;  // of this World, as of reducer_
  std::unique_ptr<collective::nccl::RailScratch> rail_scratch_;
  std::unique_ptr<collective::nccl::RailSums> rails_;         // of this World, over several hosts
  std::unique_ptr<collective::cuda::DeviceReducer> reducer_;  // of this World
};

}  // namespace regroup::elastic
