// The progress engine of a communicator and of the groups split from it: their queue of operations,
// their messages, and all waiting. They share the member's bounce buffer, so one collective
// operation runs at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "collective/core_use.h"
#include "collective/reduce/tree_fold.h"
#include "collective/shm/cma.h"
#include "collective/shm/factory.h"
#include "collective/shm/messages.h"
#include "collective/shm/sync_points.h"
#include "collective/sum_blocks.h"
#include "regroup/communicator.h"
#include "shmem/arena.h"

namespace regroup::collective::shm {

class ShmCommunicator;

// A rank's work in a tree reduction: to sum its slice of the partial sums into the shared result.
struct SliceSum {
  const reduce::TreeFold& fold;
  std::span<const std::byte* const> inputs;
  Output result;
  Dtype dtype;
  reduce::Stores stores;
  const SumBlocks& blocks;
};

// A collective operation that was started and is not yet complete.
struct Pending {
  enum class State { kNew, kCatchingUp, kFirstSync, kWorking, kSyncing, kFinalSync };

  Operation operation;
  CollectiveSignature signature;  // if it is a part of an operation over several hosts: of that one
  ShmCommunicator* communicator;
  std::uint64_t ticket;
  base::TimePoint started;
  base::TimePoint deadline;
  bool closes;  // it ends with a synchronisation point, since groups existed at its start
  State state = State::kNew;
  std::uint64_t phase = 0;  // current phase, below DataPath::phases()
  // Not null for a tree reduction; `operation` is then the barrier after it. The engine does not
  // read it once it has failed.
  const SliceSum* slice_sum = nullptr;
};

// Used by one thread. Every failure is final, because after it the members may be at different
// synchronisation points.
class ProgressEngine {
 public:
  // `ranks`: number of members of the World on this host.
  ProgressEngine(const shmem::Arena& arena, proto::Generation generation, proto::Position instance,
                 proto::SlotIndex self, std::size_t ranks, const ShmOptions& options = {});

  // The first failure so far, or kRevoked if the generation is over.
  [[nodiscard]] base::Status check();
  // check().ok() at less cost.
  [[nodiscard]] bool can_continue() const {
    return failed_.ok() && own_slot_.revoked_up_to.load(std::memory_order_acquire) < generation_;
  }
  // Queues `pending` and advances all operations. Returns the ticket of `pending`.
  [[nodiscard]] base::Result<std::uint64_t> start(const Pending& pending);
  // Describes an operation without queueing it.
  [[nodiscard]] Pending make_pending(ShmCommunicator& communicator, const Operation& operation,
                                     const CollectiveSignature& signature,
                                     base::TimePoint deadline) {
    return {operation, signature, &communicator, next_ticket_++, base::SystemClock().now(),
            deadline,  has_groups};
  }
  // Requires is_idle(). Queues `pending` in its current state and waits until it is complete.
  // `polled`: the caller has already polled spin_polls() times in vain.
  [[nodiscard]] base::Status run(const Pending& pending, bool polled = false);
  // Records a failure. Only the first one is kept.
  void fail(base::Status why);
  [[nodiscard]] bool is_idle() const { return queue_.empty() && messages_.empty(); }
  [[nodiscard]] base::Result<std::uint64_t> start_message(const ShmCommunicator& communicator,
                                                          const Operation& operation,
                                                          proto::SlotIndex peer,
                                                          base::TimePoint deadline);
  [[nodiscard]] base::Result<bool> test(std::uint64_t ticket);
  [[nodiscard]] base::Status wait(std::uint64_t ticket, bool polled = false);
  // Called by the destructor of `communicator`; its pending operations fail.
  void detach(const ShmCommunicator& communicator);

  // The generation fence: true once every member of an earlier generation on this host has left
  // that generation. Until then this member must not write to shared memory.
  [[nodiscard]] bool fence_is_open();
  // Called when all members in `slots` have arrived at a point, and so have published their cores.
  void on_sync(std::span<const proto::SlotIndex> slots);
  // Whether the members of the World on this host have a core each; counted at their first
  // synchronisation point (cores.h).
  [[nodiscard]] const CoreUse& core_use() const { return core_use_; }
  [[nodiscard]] bool spins() const { return core_use_.spins(); }
  // Spin limit: number of polls for the peers before a member queues an operation, which costs more
  // than a poll. They take about a microsecond; on shared cores, long enough for all peers to run.
  [[nodiscard]] std::size_t spin_polls() const { return spins() ? kSpinPolls : kYields * ranks_; }
  // Number of times that this member has stopped polling and slept on its doorbell.
  [[nodiscard]] std::uint64_t sleeps() const { return sleeps_; }
  // To be called between two polls. Yields the core unless members spin. False: the member should
  // stop polling.
  [[nodiscard]] bool yield_core(base::TimePoint deadline);
  // The NUMA node on which this member runs; empty if it may run on several.
  [[nodiscard]] const std::optional<int>& numa_node() const { return numa_node_; }
  [[nodiscard]] SingleCopyMode single_copy() const { return single_copy_; }
  [[nodiscard]] StorePolicy store_policy() const { return store_policy_; }
  [[nodiscard]] InlineMode inline_mode() const { return inline_mode_; }
  // This member's canary; withdrawn once the engine fails.
  [[nodiscard]] LivenessCanary& canary() { return canary_; }
  [[nodiscard]] const shmem::Arena& arena() const { return arena_; }
  [[nodiscard]] proto::SlotIndex self() const { return self_; }
  [[nodiscard]] proto::Generation generation() const { return generation_; }

  // True while groups exist. Several communicators then use one bounce buffer in turn, so each
  // operation ends with a synchronisation point, after which no member reads the operation's data.
  bool has_groups = false;

 private:
  static constexpr std::size_t kSpinPolls = 100;
  static constexpr std::size_t kYields = 2;  // per rank

  void publish_cores();
  // Advances all operations without waiting.
  void advance(bool thorough);
  [[nodiscard]] bool is_done(std::uint64_t ticket) const;
  [[nodiscard]] bool poll_again(std::uint64_t ticket);
  [[nodiscard]] bool spin(std::uint64_t ticket);
  [[nodiscard]] std::uint64_t progress() const { return sync_points_ + messages_.progress(); }
  [[nodiscard]] base::TimePoint deadline_of(std::uint64_t ticket) const;
  [[nodiscard]] base::TimePoint start_of(std::uint64_t ticket) const;
  // "allreduce: rank 1 of 2 did not arrive".
  [[nodiscard]] std::string describe_wait(std::uint64_t ticket);
  void fail_timed_out(std::uint64_t ticket);

  const shmem::Arena& arena_;
  shmem::MemberSlot& own_slot_;
  const proto::Generation generation_;
  const proto::SlotIndex self_;
  const std::size_t ranks_;
  std::optional<int> numa_node_;
  const SingleCopyMode single_copy_;
  const StorePolicy store_policy_;
  const InlineMode inline_mode_;
  base::TimePoint (*const spin_clock_)();
  CoreUse core_use_;
  bool published_cores_ = false;

  std::uint64_t next_ticket_ = 1;
  std::deque<Pending> queue_;      // the first one is running
  std::uint64_t sync_points_ = 0;  // number of points passed
  std::uint64_t sleeps_ = 0;
  Messages messages_;
  LivenessCanary canary_;
  bool fence_passed_ = false;
  base::Status failed_;
};

}  // namespace regroup::collective::shm
