// What a communicator and the groups split from it share: the member's stage, in which one collective
// operation runs at a time, the messages beside it, and all waiting.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

#include "collective/communicator.h"
#include "collective/shm/cma.h"
#include "collective/shm/factory.h"
#include "collective/shm/messages.h"
#include "collective/shm/sync_points.h"
#include "core/arena.h"

namespace regroup::collective {

class ShmCommunicator;

// A collective operation that was started and is not done.
struct Pending {
  enum class State { kNew, kCatchingUp, kFirstSync, kWorking, kSyncing, kFinalSync };

  Operation operation;
  CollectiveSignature signature;  // that it is, or is a part of: what the ranks must agree on
  ShmCommunicator* communicator;
  std::uint64_t ticket;
  core::TimePoint started;
  core::TimePoint deadline;
  bool closes;  // ends with a rendezvous: groups were about when it was started
  State state = State::kNew;
  std::uint64_t phase = 0;   // the piece of work at hand
  std::uint64_t phases = 0;  // between two of which all meet
};

// Owned and used by one thread. Every failure is final: the members may be at different rendezvous.
class ProgressEngine {
 public:
  // `ranks`: members of the World on this host. `numa_node`: this one's, instead of what its cores say.
  ProgressEngine(const core::Arena& arena, core::Generation generation, core::Position instance,
                 core::SlotIndex self, std::size_t ranks, const ShmOptions& options = {});

  // What went wrong so far: a failure of before, or kRevoked if the generation is over.
  [[nodiscard]] core::Status check();
  // check().ok(), at less cost.
  [[nodiscard]] bool can_continue() const {
    return failed_.ok() && line_.revoked_up_to.load(std::memory_order_acquire) < generation_;
  }
  // Queues `operation` and moves everything on.
  [[nodiscard]] core::Result<std::uint64_t> start(ShmCommunicator& communicator, const Operation& operation,
                                                  const CollectiveSignature& signature,
                                                  core::TimePoint deadline);
  // An operation that is not in the queue.
  [[nodiscard]] Pending make_pending(ShmCommunicator& communicator, const Operation& operation,
                                     const CollectiveSignature& signature, core::TimePoint deadline) {
    return {operation, signature, &communicator, next_ticket_++, core::SystemClock().now(),
            deadline,  has_groups};
  }
  // While is_idle() only: what is left of one, from where it is to its end.
  // `looked`: spin_polls() times for the others, in vain.
  [[nodiscard]] core::Status run(const Pending& pending, bool polled = false);
  // Notes what went wrong, for ever: the first of all that did.
  void fail(core::Status why);
  [[nodiscard]] bool is_idle() const { return queue_.empty() && messages_.empty(); }
  [[nodiscard]] core::Result<std::uint64_t> start_message(const ShmCommunicator& communicator,
                                                          const Operation& operation, core::SlotIndex peer,
                                                          core::TimePoint deadline);
  [[nodiscard]] core::Result<bool> test(std::uint64_t ticket);
  [[nodiscard]] core::Status wait(std::uint64_t ticket, bool polled = false);
  // `communicator` ends; operations of it that are under way fail.
  void detach(const ShmCommunicator& communicator);

  // True when every member of an earlier generation on this host has left it. Before, nothing shared may be
  // written.
  [[nodiscard]] bool fence_is_open();
  // The members in `slots` have met: now their cores are known.
  void on_sync(std::span<const core::SlotIndex> slots);
  // Whether each member of the World on this host can have a core for itself, as far as is known (cores.h).
  [[nodiscard]] bool spins() const { return spins_; }
  // They cannot. The same in all of them: false until they have met, before the first operation ends.
  [[nodiscard]] bool shares_cores() const { return counted_cores_ && !spins_; }
  [[nodiscard]] bool knows_cores() const { return counted_cores_; }
  // How often an operation looks for the others before it is queued, which costs more than a look: for about
  // a microsecond; on cores that are shared, until all of them could run.
  [[nodiscard]] std::size_t spin_polls() const { return spins_ ? kSpinPolls : kYields * ranks_; }
  // Between two looks, while it is true: who does not spin leaves its core to others.
  [[nodiscard]] bool yield_core(core::TimePoint deadline);
  // That this member computes on; nothing if on several.
  [[nodiscard]] std::optional<int> numa_node() const { return numa_node_; }
  [[nodiscard]] SingleCopyMode single_copy() const { return single_copy_; }
  [[nodiscard]] StorePolicy store_policy() const { return store_policy_; }
  [[nodiscard]] InlineMode inline_mode() const { return inline_mode_; }
  [[nodiscard]] LivenessCanary& sign() { return canary_; }  // of this member; gone once it fails
  [[nodiscard]] const core::Arena& arena() const { return arena_; }
  [[nodiscard]] core::SlotIndex self() const { return self_; }
  [[nodiscard]] core::Generation generation() const { return generation_; }

  // With groups about, several communicators use the stage in turn: then each operation ends with a
  // rendezvous, behind which nobody reads it.
  bool has_groups = false;

 private:
  static constexpr std::size_t kSpinPolls = 100;
  static constexpr std::size_t kYields = 2;  // for each rank

  void publish_cores();
  // Moves everything on as far as it gets without waiting.
  void advance(bool thorough);
  [[nodiscard]] bool is_done(std::uint64_t ticket) const;
  [[nodiscard]] bool poll_again(std::uint64_t ticket);
  [[nodiscard]] bool spin(std::uint64_t ticket);
  [[nodiscard]] std::uint64_t progress() const { return sync_points_ + messages_.progress(); }
  [[nodiscard]] core::TimePoint deadline_of(std::uint64_t ticket) const;
  [[nodiscard]] core::TimePoint start_of(std::uint64_t ticket) const;
  [[nodiscard]] std::string describe_wait(std::uint64_t ticket);  // "allreduce: rank 1 of 2 did not arrive"
  void fail_timed_out(std::uint64_t ticket);

  const core::Arena& arena_;
  core::Line& line_;  // of this member
  const core::Generation generation_;
  const core::SlotIndex self_;
  const std::size_t ranks_;
  std::optional<int> numa_node_;
  const SingleCopyMode single_copy_;
  const StorePolicy store_policy_;
  const InlineMode inline_mode_;
  bool spins_;
  bool published_cores_ = false;
  bool counted_cores_ = false;

  std::uint64_t next_ticket_ = 1;
  std::deque<Pending> queue_;      // the first is under way
  std::uint64_t sync_points_ = 0;  // behind us
  Messages messages_;
  LivenessCanary canary_;
  bool fence_passed_ = false;
  core::Status failed_;
};

}  // namespace regroup::collective
