// The sum of a slice over all hosts: each host sums its leaves to the largest nodes of the
// canonical tree that it holds, the ranks of a rail exchange parts of these by NCCL, and the kernel
// of the tree adds them. NCCL only moves bytes, so the bits are the tree's.
// docs/design/nccl_plane.md.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collective/cuda/device_kernels.h"
#include "collective/cuda/device_scratch.h"
#include "collective/cuda/host_exchange.h"
#include "collective/cuda/tree_plan.h"
#include "collective/nccl/comm.h"

namespace regroup::collective::nccl {

// Memory for one sum at a time, which outlives generations.
struct RailScratch {
  explicit RailScratch(const cuda::Driver& driver)
      : sums(driver), exchanged(driver), bytes(driver) {}

  cuda::DeviceScratch sums;       // over parts of the tree
  cuda::DeviceScratch exchanged;  // what is sent and received
  cuda::DeviceScratch bytes;      // of first transfers
  void abandon() { sums.abandon(), exchanged.abandon(), bytes.abandon(); }
};

// Of one generation.
class RailSums final : public cuda::HostExchange {
 public:
  // All ranks of a rail may see the same error. The limits of hosts differ by kErrorStep, so that
  // the first one that fails ends the generation before the others fail, too.
  static constexpr std::chrono::seconds kErrorLimit{10};
  static constexpr std::chrono::seconds kErrorStep{5};

  // `comm`: of this rank's rail, ready, in which the rank is the number of its host; null: this
  // rank is on no rail. `kernels` and `scratch` must outlive this object. `error_limit`: at most
  // kErrorLimit.
  RailSums(const cuda::DeviceKernels& kernels, RailScratch& scratch, int rails, int host, int hosts,
           std::unique_ptr<Comm> comm, base::Duration error_limit = kErrorLimit)
      : kernels_(kernels),
        scratch_(scratch),
        rails_(rails),
        host_(host),
        hosts_(hosts),
        comm_(std::move(comm)),
        error_limit_(std::min<base::Duration>(error_limit, kErrorLimit) + host * kErrorStep) {}

  // Before each sum: which host holds each leaf; the same on all hosts.
  void set_owners(std::vector<int> host_of_leaf) { host_of_leaf_ = std::move(host_of_leaf); }

  // Reserves the memory of the device that sum() of slice `rail` takes for sums of `bytes` bytes,
  // so that no step finds that it is missing (kResourceExhausted).
  [[nodiscard]] base::Status reserve(std::size_t bytes, int rail, Dtype dtype);

  [[nodiscard]] int slices() const override { return rails_; }
  // kInvalidArgument: the partials are not sums over the leaves of this host.
  [[nodiscard]] base::Status sum(const Slice& slice) override;
  // After an error that NCCL has found, others have a while to say that a member is lost.
  [[nodiscard]] base::Status status() override;
  [[nodiscard]] base::Status stop() override { return comm_ ? comm_->stop() : base::Status(); }
  // At the end of the process; as of Comm.
  [[nodiscard]] base::Status close() { return comm_ ? comm_->close() : base::Status(); }

 private:
  // A node that a host holds, and where its slice lies here, or will lie.
  struct Held {
    proto::Interval leaves;
    int host = 0;
    cuda::DevicePointer at = 0;  // of this host's: the slice; of others': this host's part of it
  };
  struct Part {
    std::size_t begin = 0;  // in the slice
    std::size_t bytes = 0;
  };

  [[nodiscard]] Part part_of(int host, const Slice& slice) const;
  [[nodiscard]] base::Result<std::vector<Held>> place(const Slice& slice);
  [[nodiscard]] base::Status sum_here(const Slice& slice, const Held& held);
  [[nodiscard]] base::Status exchange(const Slice& slice, const std::vector<Transfer>& transfers);
  [[nodiscard]] base::Status send_parts(const Slice& slice, const std::vector<Held>& held);
  [[nodiscard]] base::Status sum_part(const Slice& slice, const std::vector<Held>& held);
  [[nodiscard]] base::Status send_result(const Slice& slice);
  // Memory for the plan's own partial sums of `bytes` bytes.
  [[nodiscard]] base::Result<cuda::DevicePointer> reserve_sums(const cuda::TreePlan& plan,
                                                               std::size_t bytes, Dtype dtype);
  [[nodiscard]] base::Status launch(const std::vector<proto::Interval>& nodes, std::uint32_t leaves,
                                    const std::vector<const void*>& inputs, cuda::DevicePointer to,
                                    std::size_t bytes, const Slice& slice);

  const cuda::DeviceKernels& kernels_;
  RailScratch& scratch_;
  const int rails_;
  const int host_;
  const int hosts_;
  const std::unique_ptr<Comm> comm_;
  const base::Duration error_limit_;
  std::vector<int> host_of_leaf_;
  std::optional<base::TimePoint> failed_at_;
};

}  // namespace regroup::collective::nccl
