// The data path of a communicator: who copies or sums which blocks in which phase, the time between
// two synchronisation points of an operation. data_path.cc holds the phases, bounce_copy.cc the
// copies to and from bounce buffers. Canonical sums do not pass here: sum_slice() in
// communicator.cc does them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/status.h"
#include "collective/core_use.h"
#include "collective/reduce/tree_fold.h"
#include "collective/shm/bounce_buffer.h"
#include "collective/shm/cma.h"
#include "collective/shm/factory.h"
#include "collective/shm/inline_exchange.h"
#include "collective/shm/numa_domains.h"
#include "collective/shm/plan.h"
#include "collective/shm/single_copy.h"
#include "collective/shm/store_tuner.h"
#include "collective/shm/sync_points.h"
#include "collective/signature.h"
#include "regroup/operation.h"
#include "shmem/arena.h"

namespace regroup::collective::shm {

// Of one member, and of one operation after the other: each begins with begin() or begin_phases(),
// and all calls until the next one are about it, with the same Operation. The caller arrives at
// `sync` between two phases and waits there; all members run the same operations. Owned and used by
// one thread. Nothing blocks.
class DataPath {
 public:
  // What a data path uses besides its own state. All must outlive it.
  struct Context {
    const shmem::Arena& arena;
    SyncPoints& sync;
    LivenessCanary& canary;  // of this member
    const CoreUse& cores;
    const std::optional<int>& numa_node;  // of this member; empty: several
  };
  // `slots`: of the members, by rank; `rank`: of this one; `ranks_fold`: over one input of each.
  DataPath(const Context& context, std::vector<proto::SlotIndex> slots, int rank,
           reduce::TreeFold ranks_fold, StorePolicy stores, SingleCopyMode single_copy);

  // Makes `o`, which needs one synchronisation point, the current operation.
  void begin(const Plan& plan, const CollectiveSignature& signature, const Operation& o);
  // Likewise, for any operation of all kinds but messages. `is_part`: of one over several hosts.
  void begin_phases(const Plan& plan, const CollectiveSignature& signature, const Operation& o,
                    bool is_part);
  [[nodiscard]] const Plan& plan() const { return plan_; }
  // Of the current operation; grows when the ranks learn where the memory of the others lies. A
  // synchronisation point lies between two phases.
  [[nodiscard]] std::uint64_t phases() const { return phases_; }
  // Runs phase number `phase`. Returns the payload of the arrival after it, valid until that.
  [[nodiscard]] Input work(const Operation& o, std::uint64_t phase);

  // After the first synchronisation point: learns where the contributions lie and adapts the plan.
  void collect_offsets(const Operation& o);
  // In phase 1 of a single copy, before work(): reads this rank's parts of the others' memory.
  // `may_read(r)` is called before each MiB of rank r; its error ends the operation. A read that
  // fails is no error: this rank votes so.
  using MayRead = std::function<base::Status(std::size_t rank)>;
  [[nodiscard]] base::Status read_all(const Operation& o, const MayRead& may_read);
  // After the point at which all have reported whether they could read.
  void collect_votes();

  // In phase 1 of an operation by inline chunks, before work(): true when all have come.
  [[nodiscard]] bool fetch_inline_chunks(const Operation& o) {
    return inline_.fetch(o, plan_.block);
  }
  [[nodiscard]] std::size_t missing_rank() const { return inline_.missing_rank(); }

  // True when the peers find this member's contribution without its help and it needs nothing from
  // them: the last synchronisation point, after phase `phase` - 1, can wait until the next
  // operation. Then deliver_own() completes the operation.
  [[nodiscard]] bool may_exit_eagerly(const Operation& o, std::uint64_t phase) const;
  void deliver_own(const Operation& o);

  // work() in parts, for an operation with one point, in phases 0 and 1.
  [[nodiscard]] Input send(const Operation& o);
  void receive(const Operation& o);
  // Prefetches what the peers are about to have written for this rank, before it polls for them.
  void prefetch_others(const Operation& o) const;
  // Prefetches for writing the lines that the next operation writes first if it equals `o`.
  void prefetch_next(const Operation& o, const Plan& plan) const;

  void copy(std::byte* to, const std::byte* from, std::size_t bytes, reduce::Stores stores) const;
  [[nodiscard]] BounceBuffers& buffers() { return buffers_; }
  [[nodiscard]] const BounceBuffers& buffers() const { return buffers_; }
  [[nodiscard]] const reduce::TreeFold& ranks_fold() const { return ranks_fold_; }
  // The stores that fill a chunk of `placed` bytes best, as of the last trial.
  [[nodiscard]] reduce::Stores store_choice(Kind kind, std::size_t placed) const {
    return tuners_.choice(kind, placed);
  }
  [[nodiscard]] std::uint64_t single_copies() const { return single_copy_.done(); }  // by CMA

 private:
  [[nodiscard]] int size() const { return static_cast<int>(buffers_.ranks()); }
  [[nodiscard]] std::size_t chunks() const { return (plan_.block + plan_.piece - 1) / plan_.piece; }
  [[nodiscard]] Input work_in(const Operation& o, std::uint64_t phase);
  void locate_in_arena(const Operation& o);
  [[nodiscard]] Input arrival_payload(const Operation& o) const;
  [[nodiscard]] Input expose_memory(const Operation& o);
  void copy_in(const Operation& o, std::size_t index);
  void fill_chunk(const Operation& o, std::size_t index, reduce::Stores stores);
  void set_sources(const Operation& o, std::size_t index);
  void fold_slice(const Operation& o, std::size_t index);
  void collect_slices(const Operation& o, std::size_t index);
  void deliver(const Operation& o, std::size_t at, std::size_t bytes);
  void fold_all_into_shared(const Operation& o);
  void choose_levels(const Operation& o);
  void fold_in_two_levels(const Operation& o, std::size_t index);
  void fold_in_results(const Operation& o);
  void end_chunk(const Operation& o, std::size_t index, std::uint64_t epoch);
  void copy_out(const Operation& o, std::size_t index, std::uint64_t epoch);

  const Context context_;
  SyncPoints& sync_;  // context_.sync
  const int rank_;
  const reduce::TreeFold ranks_fold_;
  BounceBuffers buffers_;
  StoreTuners tuners_;
  // Set when the members compute on several NUMA nodes; decided at the first large reduction.
  std::optional<TwoLevels> levels_;
  bool levels_chosen_ = false;
  // State of the current operation.
  Plan plan_;
  std::uint64_t phases_ = 0;
  CollectiveSignature signature_;
  InlineExchange inline_;
  std::vector<const std::byte*> inputs_, results_;  // by rank: in the arena, or null
  std::vector<const std::byte*> sources_;           // by rank: of the current chunk
  Offsets offsets_{};
  bool same_output_ = false;
  SingleCopy single_copy_;
};

}  // namespace regroup::collective::shm
