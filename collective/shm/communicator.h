// The shared-memory Communicator. communicator.cc runs operations from synchronisation point to
// synchronisation point, fast_path.cc runs blocking operations without the queue where it can;
// phases.cc and bounce_copy.cc hold the work between two points, factory.cc opens and splits
// communicators.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/local_communicator.h"
#include "collective/reduce/tree_fold.h"
#include "collective/shm/bounce_buffer.h"
#include "collective/shm/numa_domains.h"
#include "collective/shm/plan.h"
#include "collective/shm/plan_cache.h"
#include "collective/shm/progress_engine.h"
#include "collective/shm/single_copy.h"
#include "collective/shm/store_tuner.h"
#include "collective/shm/sync_points.h"
#include "collective/tree_reducer.h"

namespace regroup::collective {

class ShmCommunicator final : public LocalCommunicator, private TreeReducer {
 public:
  using Group = ShmGroup;
  ShmCommunicator(std::shared_ptr<ProgressEngine> engine, Group group, TreeFold ranks_fold);
  ~ShmCommunicator() override;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(buffers_.ranks()); }
  [[nodiscard]] base::Result<Request> start(const Operation& operation,
                                            base::TimePoint deadline) override;
  [[nodiscard]] base::Status run(const Operation& operation, base::TimePoint deadline) override;
  [[nodiscard]] TreeReducer& tree_reducer() override { return *this; }
  [[nodiscard]] base::Result<std::unique_ptr<Communicator>> split(
      int color, base::TimePoint deadline) override;

  [[nodiscard]] base::Result<Request> start_part(const CollectiveSignature& signature,
                                                 const Operation& operation,
                                                 base::TimePoint deadline) override;
  [[nodiscard]] std::optional<Mismatch> mismatch() const override { return sync_.mismatch(); }
  [[nodiscard]] base::Result<std::unique_ptr<LocalCommunicator>> split_local(
      int color, base::TimePoint deadline) override;
  [[nodiscard]] std::shared_ptr<const CoreUse> core_use() const override {
    return {engine_, &engine_->core_use()};
  }

  // For the progress engine: advances `pending` without waiting; true when it is complete.
  [[nodiscard]] base::Result<bool> advance(Pending& pending, bool thorough);
  [[nodiscard]] std::uint64_t single_copies() const {
    return single_copy_.done();
  }  // operations by CMA
  [[nodiscard]] const ProgressEngine& engine() const { return *engine_; }
  [[nodiscard]] std::string list_missing() { return sync_.list_missing(); }

 private:
  [[nodiscard]] base::Result<bool> test(std::uint64_t ticket) override {
    return engine_->test(ticket);
  }
  [[nodiscard]] base::Status wait(std::uint64_t ticket) override { return engine_->wait(ticket); }
  [[nodiscard]] base::Status reduce(std::span<const Partial> partials, std::uint32_t leaf_count,
                                    Output result, Dtype dtype, base::TimePoint deadline,
                                    const SumBlocks& blocks) override;
  [[nodiscard]] base::Result<bool> step(Pending& pending, bool thorough);
  [[nodiscard]] const CachedPlan* cache_plan(const Operation& operation);
  [[nodiscard]] bool has_caught_up(base::TimePoint deadline);
  void prefetch_others(const Operation& operation) const;
  void prefetch_next(const Operation& operation, const Plan& plan) const;
  [[nodiscard]] base::Status run_unqueued(Pending& pending);
  [[nodiscard]] bool run_fast(const CachedPlan& cached, base::TimePoint deadline);
  [[nodiscard]] bool run_two_rank(const CachedPlan& cached);
  void send_two_rank(const CachedPlan& cached);
  [[nodiscard]] bool poll_others(const Operation& operation, base::TimePoint deadline);
  [[nodiscard]] bool is_shared(const Operation& operation) const;
  [[nodiscard]] Planning planning() const {
    return {rank_, size(), engine_->core_use().shares_cores(), engine_->inline_mode(),
            buffers_.capacity()};
  }
  void begin(const Plan& plan, const CollectiveSignature& signature, const Operation& operation);
  void begin(Pending& pending, const Plan& plan, bool is_part);
  [[nodiscard]] bool may_exit_eagerly(const Pending& pending) const;
  void sum_slice(const SliceSum& sum) const;
  // Runs phase `pending.phase`; returns the payload for the synchronisation point after it.
  [[nodiscard]] std::span<const std::byte> work(Pending& pending);
  void locate_in_arena(const Operation& operation);
  [[nodiscard]] std::span<const std::byte> arrival_payload(const Operation& operation) const;
  void collect_offsets(Pending& pending);
  [[nodiscard]] Input expose_memory(const Operation& operation);
  [[nodiscard]] base::Status read_all(const Pending& pending);
  void collect_votes(Pending& pending);
  [[nodiscard]] Output inline_destination(const Operation& operation, std::size_t rank);
  void write_own_inline_chunks(const Operation& operation);
  [[nodiscard]] bool fetch_inline_chunks(const Operation& operation);
  void copy_in(const Operation& operation, std::size_t index);
  void fill_chunk(const Operation& operation, std::size_t index, Stores stores);
  void set_sources(const Operation& operation, std::size_t index);
  void fold_slice(const Operation& operation, std::size_t index);
  void collect_slices(const Operation& operation, std::size_t index);
  void deliver(const Operation& operation, std::size_t at, std::size_t bytes);
  void deliver_own(const Operation& operation);
  void fold_all_into_shared(const Operation& operation);
  void choose_levels(const Operation& operation);
  void fold_in_two_levels(const Operation& operation, std::size_t index);
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, Stores stores) const;
  void fold_in_results(Pending& pending);
  void end_chunk(const Operation& operation, std::size_t index, std::uint64_t epoch);
  void copy_out(const Operation& operation, std::size_t index, std::uint64_t epoch);

  const std::shared_ptr<ProgressEngine> engine_;
  const int rank_;
  shmem::Channel* const channel_;  // this member's
  const TreeFold ranks_fold_;      // over one input of each rank
  BounceBuffers buffers_;
  StoreTuners tuners_;
  SyncPoints sync_;
  bool synchronised_;
  bool exited_eagerly_ = false;  // left the last point before all members arrived
  // Set when the members compute on several NUMA nodes; decided at the first large reduction.
  std::optional<TwoLevels> levels_;
  bool levels_chosen_ = false;
  PlanCache plan_cache_;
  // State of the current operation.
  Plan plan_;
  CollectiveSignature signature_;
  std::vector<const std::byte*> inputs_, results_;  // by rank: in the arena, or null
  std::vector<const std::byte*> sources_;           // by rank: of the current chunk
  std::vector<std::byte> fetched_;  // inline contributions to be reduced, one region a rank
  std::size_t fetched_ranks_ = 0;   // ranks below are complete
  Offsets offsets_{};
  bool same_output_ = false;
  SingleCopy single_copy_;
};

// make_shm() (factory.h).
[[nodiscard]] base::Result<std::unique_ptr<ShmCommunicator>> open_shm(
    const shmem::Arena& arena, const proto::World& world, proto::SlotId self,
    const CommunicatorOptions& options = {}, const ShmOptions& shm = {});

// Marks a channel as free for a new group.
void release_channel(shmem::Channel& channel);

}  // namespace regroup::collective
