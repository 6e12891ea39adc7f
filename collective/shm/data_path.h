// The data path of a communicator: which rank copies or sums which blocks in which phase. A phase
// is the time between two synchronisation points of an operation. data_path.cc has the phases,
// bounce_copy.cc the copies to and from bounce buffers. Canonical sums are elsewhere: sum_slice()
// in communicator.cc.
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

// Works for one member, on one operation after the other. begin() or begin_phases() starts an
// operation; all calls until the next start concern that one and pass the same Operation. Between
// two phases the caller arrives at `sync` and waits there. All members run the same operations.
// Used by one thread. Nothing blocks.
class DataPath {
 public:
  // What a data path uses in addition to its own state. All of it must outlive the data path.
  struct Context {
    const shmem::Arena& arena;
    SyncPoints& sync;
    LivenessCanary& canary;  // this member's
    const CoreUse& cores;
    const std::optional<int>& numa_node;  // on which this member runs; empty: several
  };
  // `slots`: the members' slots, by rank. `rank`: this member's. `ranks_fold`: the fold over one
  // input of each rank.
  DataPath(const Context& context, std::vector<proto::SlotIndex> slots, int rank,
           reduce::TreeFold ranks_fold, StorePolicy stores, SingleCopyMode single_copy);

  // Makes `o`, which needs one synchronisation point, the current operation.
  void begin(const Plan& plan, const CollectiveSignature& signature, const Operation& o);
  // Likewise for any operation except a message. `is_part`: it is a part of an operation over
  // several hosts.
  void begin_phases(const Plan& plan, const CollectiveSignature& signature, const Operation& o,
                    bool is_part);
  [[nodiscard]] const Plan& plan() const { return plan_; }
  // Number of phases of the current operation. May grow in collect_offsets().
  [[nodiscard]] std::uint64_t phases() const { return phases_; }
  // Runs phase number `phase`. Returns the payload for the arrival after it, valid until then.
  [[nodiscard]] Input work(const Operation& o, std::uint64_t phase);

  // To be called after the first synchronisation point: reads where the ranks' contributions are in
  // memory and adapts the plan.
  void collect_offsets(const Operation& o);
  // In phase 1 of a single copy, before work(): reads this rank's parts of the others' memory.
  // Calls `may_read(r)` before each MiB of rank r and returns its error. A read that fails is not
  // an error: this rank then votes that it could not read.
  using MayRead = std::function<base::Status(std::size_t rank)>;
  [[nodiscard]] base::Status read_all(const Operation& o, const MayRead& may_read);
  // To be called after the point at which all ranks have voted whether they could read.
  void collect_votes();

  // In phase 1 of an operation by inline chunks, before work(): true once all chunks have arrived.
  [[nodiscard]] bool fetch_inline_chunks(const Operation& o) {
    return inline_.fetch(o, plan_.block);
  }
  [[nodiscard]] std::size_t missing_rank() const { return inline_.missing_rank(); }

  // True if the peers need no more help of this member and it needs nothing from them: then it need
  // not wait at the last synchronisation point, after phase `phase` - 1, before its next operation.
  // deliver_own() then completes the operation.
  [[nodiscard]] bool may_exit_eagerly(const Operation& o, std::uint64_t phase) const;
  void deliver_own(const Operation& o);

  // work() in parts, for an operation with one point, in phases 0 and 1.
  [[nodiscard]] Input send(const Operation& o);
  void receive(const Operation& o);
  // Prefetches the lines that the peers are writing for this rank; call it before polling for them.
  void prefetch_others(const Operation& o) const;
  // Prefetches for writing the lines that the next operation writes first if it equals `o`.
  void prefetch_next(const Operation& o, const Plan& plan) const;

  void copy(std::byte* to, const std::byte* from, std::size_t bytes, reduce::Stores stores) const;
  [[nodiscard]] BounceBuffers& buffers() { return buffers_; }
  [[nodiscard]] const BounceBuffers& buffers() const { return buffers_; }
  [[nodiscard]] const reduce::TreeFold& ranks_fold() const { return ranks_fold_; }
  // The stores that filled a chunk of `placed` bytes fastest in the tuner's last trial.
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
  void fold_into_all(const Operation& o);
  void end_chunk(const Operation& o, std::size_t index, std::uint64_t epoch);
  void copy_out(const Operation& o, std::size_t index, std::uint64_t epoch);

  const Context context_;
  SyncPoints& sync_;  // context_.sync
  const int rank_;
  const reduce::TreeFold ranks_fold_;
  BounceBuffers buffers_;
  StoreTuners tuners_;
  // Set if the members run on several NUMA nodes; decided at the first large reduction.
  std::optional<TwoLevels> levels_;
  bool levels_chosen_ = false;
  // State of the current operation.
  Plan plan_;
  std::uint64_t phases_ = 0;
  CollectiveSignature signature_;
  InlineExchange inline_;
  std::vector<const std::byte*> inputs_;   // by rank; null: not in the arena
  std::vector<std::byte*> results_;        // likewise
  std::vector<const std::byte*> sources_;  // by rank, for the current chunk
  Offsets offsets_{};
  bool same_output_ = false;
  SingleCopy single_copy_;
};

}  // namespace regroup::collective::shm
