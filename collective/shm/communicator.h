// The shared-memory Communicator. communicator.cc takes operations from one synchronisation point
// to the next; fast_path.cc runs blocking operations without the queue if it can; DataPath does the
// work between two points; factory.cc opens and splits communicators.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "collective/local_communicator.h"
#include "collective/reduce/tree_fold.h"
#include "collective/shm/data_path.h"
#include "collective/shm/plan.h"
#include "collective/shm/plan_cache.h"
#include "collective/shm/progress_engine.h"
#include "collective/shm/sync_points.h"
#include "collective/tree_reducer.h"

namespace regroup::collective::shm {

class ShmCommunicator final : public LocalCommunicator, private TreeReducer {
 public:
  using Group = ShmGroup;
  ShmCommunicator(std::shared_ptr<ProgressEngine> engine, Group group, reduce::TreeFold ranks_fold);
  ~ShmCommunicator() override;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(data_.buffers().ranks()); }
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

  // For the progress engine: advances `pending` without waiting; true once it is complete.
  // `thorough`: check all members for a mismatch even if one has not arrived.
  [[nodiscard]] base::Result<bool> advance(Pending& pending, bool thorough);
  // Number of operations completed by CMA.
  [[nodiscard]] std::uint64_t single_copies() const { return data_.single_copies(); }
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
  [[nodiscard]] base::Status run_unqueued(Pending& pending);
  [[nodiscard]] bool run_fast(const CachedPlan& cached, base::TimePoint deadline);
  [[nodiscard]] bool run_two_rank(const CachedPlan& cached);
  void send_two_rank(const CachedPlan& cached);
  [[nodiscard]] bool poll_others(const Operation& operation, base::TimePoint deadline);
  [[nodiscard]] bool is_shared(const Operation& operation) const;
  [[nodiscard]] Planning planning() const {
    return {rank_, size(), engine_->core_use().shares_cores(), engine_->inline_mode(),
            data_.buffers().capacity()};
  }
  [[nodiscard]] base::Status read_all(const Pending& pending);

  const std::shared_ptr<ProgressEngine> engine_;
  const int rank_;
  shmem::Channel* const channel_;  // this member's
  SyncPoints sync_;
  DataPath data_;
  bool synchronised_;
  bool exited_eagerly_ = false;  // this member left the last point before all had arrived
  PlanCache plan_cache_;
};

// As make_shm() of factory.h, but returns the concrete type.
[[nodiscard]] base::Result<std::unique_ptr<ShmCommunicator>> open_shm(
    const shmem::Arena& arena, const proto::World& world, proto::SlotId self,
    const CommunicatorOptions& options = {}, const ShmOptions& shm = {});

// Marks a channel as free for a new group.
void release_channel(shmem::Channel& channel);

}  // namespace regroup::collective::shm
