// The reduction of gradients in memory of GPUs, among the ranks of one host: each GPU sums one
// slice of all partial sums, which it reads where they lie, into its rank's slice area; then each
// rank copies all slices into memory of its own. docs/design/cuda_plane.md. With other hosts, a
// slice is summed with theirs: docs/design/nccl_plane.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/cuda/device_kernels.h"
#include "collective/cuda/device_scratch.h"
#include "collective/cuda/driver.h"
#include "collective/cuda/host_exchange.h"
#include "collective/cuda/tree_plan.h"
#include "collective/cuda/watcher.h"
#include "collective/tree_reducer.h"
#include "proto/world.h"
#include "shmem/doorbell.h"
#include "shmem/member_slot.h"

namespace regroup::collective::cuda {

// Words of a rank in host memory that all ranks of the host map.
using shmem::ReduceWords;

// A rank as another one sees it.
struct DeviceRank {
  ReduceWords* words;
  DevicePointer slice_area;  // mapped into this process; written by that rank alone
  std::uint64_t slice_area_bytes;
  int gpu;  // a number that ranks of the same GPU share
};

struct DeviceReducerSpec {
  std::vector<DeviceRank> ranks;  // of the generation, the same in all of them
  int rank = 0;                   // this one
  proto::Generation generation = 1;
  Stream stream = nullptr;  // for the work of sums alone
  // What this rank sleeps on. The watcher rings it and those of all other ranks after each store;
  // whoever ends the generation rings it, too.
  shmem::Doorbell<shmem::RealPolicy>* bell = nullptr;
  // Why this rank must stop waiting: kRevoked after the end of the generation, for example. Called
  // in the loop of each wait.
  std::function<base::Status()> check;
  // Null: the ranks of this host hold all leaves.
  HostExchange* hosts = nullptr;
};

// A TreeReducer whose partials and result are memory of the GPU, at multiples of 16 bytes: the
// partials readable by kernels of this process, in this process's addresses. The result belongs to
// this rank alone, and on return has the whole sum. Used by one thread, with the context of
// `kernels` and of the watcher current.
//
// No kernel waits for another process: a rank launches work when it has seen the words that the
// work needs. After an error or a revoke no work of the sum is under way; if the device does not
// end it within kDrainLimit, the message says so.
class DeviceReducer final : public TreeReducer {
 public:
  static constexpr std::chrono::seconds kDrainLimit{5};

  // All objects must outlive the reducer; the words and slice areas also those of the other ranks.
  // Successive reducers of a generation go on counting where the words are.
  DeviceReducer(const Driver& driver, const DeviceKernels& kernels, Watcher& watcher,
                DeviceScratch& scratch, DeviceReducerSpec spec);
  ~DeviceReducer() override;
  DeviceReducer(const DeviceReducer&) = delete;
  DeviceReducer& operator=(const DeviceReducer&) = delete;

  // The next reduce() writes its result after the work that is on `stream` now, which may read the
  // last result still. The driver's errors.
  [[nodiscard]] base::Status write_result_after(Stream stream);

  // As TreeReducer says, with kRevoked or another status of `check`. kDeadlineExceeded names the
  // rank for which this one waits. kResourceExhausted: the device lacks memory for a sum of more
  // nodes than a launch takes. Frees nothing on the device, since that waits for all its work.
  // kInvalidArgument: types that are no floats, memory at other addresses, or more bytes than slice
  // areas have. Other errors are the device's. `blocks` is not used: what survives a generation is
  // the leaves.
  [[nodiscard]] base::Status reduce(std::span<const Partial> partials, std::uint32_t leaf_count,
                                    Output result, Dtype dtype, base::TimePoint deadline,
                                    const SumBlocks& blocks) override;
  using TreeReducer::reduce;

  // False once the device has not ended what it was to end: calls that free something would wait
  // without a limit.
  [[nodiscard]] bool answers() const { return answers_; }
  // What the last reduce() returned; ok before the first.
  [[nodiscard]] const base::Status& failure() const { return failed_; }

 private:
  struct Sum {
    std::uint64_t number;
    std::span<const Partial> partials;
    std::uint32_t leaves;
    Output result;
    Dtype dtype;
    base::TimePoint deadline;
  };

  [[nodiscard]] base::Status check_memory(const Sum& sum) const;
  [[nodiscard]] base::Status plan(std::span<const Partial> partials, std::uint32_t leaf_count);
  [[nodiscard]] base::Status run(const Sum& sum);
  [[nodiscard]] base::Status sum_slice(const Sum& sum);
  [[nodiscard]] base::Status sum_range(const Sum& sum, std::size_t begin, DevicePointer to,
                                       std::size_t bytes);
  [[nodiscard]] base::Status launch(const Sum& sum, std::size_t begin, DevicePointer to,
                                    std::size_t bytes);
  [[nodiscard]] base::Status gather(const Sum& sum);
  [[nodiscard]] base::Status wait_for(std::span<const int> ranks,
                                      std::atomic<std::uint64_t> ReduceWords::*word,
                                      std::uint64_t number, const char* what,
                                      base::TimePoint deadline);
  void end_work();
  [[nodiscard]] bool drain();
  [[nodiscard]] base::Status status(DriverResult result, const char* call) const;
  [[nodiscard]] ReduceWords& own_words() const {
    return *spec_.ranks[static_cast<std::size_t>(spec_.rank)].words;
  }

  const Driver driver_;
  const DeviceKernels kernels_;
  Watcher& watcher_;
  DeviceScratch& scratch_;  // sums over parts of the tree
  const DeviceReducerSpec spec_;
  std::vector<int> all_ranks_;
  std::vector<int> adders_;   // the lowest rank of each GPU that sums a slice
  std::optional<int> slice_;  // this rank's among the slices; empty: another rank sums for it
  std::uint64_t last_ = 0;    // the last sum; 0: none in this generation
  std::vector<proto::Interval> planned_;  // the nodes of plan_
  TreePlan plan_;
  std::uint32_t planned_leaves_ = 0;
  DriverEvent event_ = nullptr;  // of write_result_after()
  DriverEvent drained_ = nullptr;
  bool result_is_read_ = false;  // until event_
  bool answers_ = true;          // the device ended what was to be drained
  base::Status failed_;
};

}  // namespace regroup::collective::cuda
