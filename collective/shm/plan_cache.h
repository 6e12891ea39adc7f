// The recent blocking operations of a communicator with their plans, so that a repeated operation
// needs neither validation nor planning.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "collective/reduce/kernels.h"
#include "collective/shm/plan.h"
#include "collective/signature.h"
#include "regroup/operation.h"

namespace regroup::collective::shm {

// How fast_path.cc runs an operation when the queue is empty. kOnePoint and kTwoRanks need a single
// synchronisation point, because contributions travel in arrivals or are copied.
enum class RunBy : std::uint8_t {
  kStateMachine,
  kOnePoint,
  kTwoRanks,  // by run_two_rank(), if both ranks spin
};

struct CachedPlan {
  Operation operation;
  CollectiveSignature signature;
  Plan plan;
  RunBy run_by = RunBy::kStateMachine;
  // Arguments of the reduction, for an allreduce of kTwoRanks.
  reduce::Kernels::Close close = nullptr;
  std::uint32_t divisor = 1;
  std::size_t count = 0;  // elements
};

// Owned and used by one thread.
class PlanCache {
 public:
  static constexpr std::size_t kEntries = 32;

  // The entry whose operation equals `o` in all fields, or null; valid until the next add().
  // Operations in a loop repeat in order, so find() first checks the entry that followed the latest
  // one last time (if the latest ran twice in a row: the one that followed its second run).
  [[nodiscard]] const CachedPlan* find(const Operation& o) {
    std::size_t at = entries_[latest_].followers[repeats_];
    if (!is_it(entries_[at], o)) {
      const auto found =
          std::ranges::find_if(entries_, [&](const Entry& entry) { return is_it(entry, o); });
      if (found == entries_.end()) return nullptr;
      at = static_cast<std::size_t>(found - entries_.begin());
    }
    return &set_latest(at).cached;
  }
  // Replaces the oldest entry by `cached`. Returns the new entry.
  CachedPlan& add(const CachedPlan& cached) {
    Entry& entry = set_latest(added_++ % kEntries);
    entry = {cached, true};
    return entry.cached;
  }

 private:
  struct Entry {
    CachedPlan cached;
    bool is_set = false;
    // [0]: the entry that followed a single run of this one; [1]: that followed a second run.
    std::array<std::uint8_t, 2> followers{};
  };

  [[nodiscard]] static bool is_it(const Entry& entry, const Operation& b) {
    const Operation& a = entry.cached.operation;
    return entry.is_set && a.kind == b.kind && a.dtype == b.dtype && a.op == b.op &&
           a.root == b.root && a.in.data() == b.in.data() && a.in.size() == b.in.size() &&
           a.out.data() == b.out.data() && a.out.size() == b.out.size();
  }
  // Makes entry `at` the latest, and notes that it followed the previous one.
  Entry& set_latest(std::size_t at) {
    entries_[latest_].followers[repeats_] = static_cast<std::uint8_t>(at);
    repeats_ = at == latest_ ? 1 : 0;
    latest_ = at;
    return entries_[at];
  }

  std::array<Entry, kEntries> entries_;
  std::size_t added_ = 0;
  std::size_t latest_ = 0;
  std::size_t repeats_ = 0;  // 1: the latest ran twice in a row
};

}  // namespace regroup::collective::shm
