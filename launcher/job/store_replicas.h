// Which stores of a parameter server with replicas (--ps-replicas) are lost, and what is left of
// its tables. Pure. docs/design/ps_hosts.md.
#pragma once

#include <cstddef>
#include <vector>

namespace regroup::job {

// The ranges of store s have copies in the stores s, s + 1, ..., s + replicas - 1, modulo the
// number of stores. Store 0 is on the launcher's host and is never lost without the job.
class StoreReplicas {
 public:
  // 1 <= replicas <= stores.
  StoreReplicas(std::size_t stores, std::size_t replicas)
      : replicas_(replicas), lost_(stores, false) {}

  [[nodiscard]] std::size_t count() const { return replicas_; }
  // Store `store` is lost. A second call for a store has no effect.
  void lose(std::size_t store) { lost_.at(store) = true; }
  [[nodiscard]] bool is_lost(std::size_t store) const { return lost_.at(store); }
  [[nodiscard]] std::vector<std::size_t> lost() const;
  // The stores all copies of whose ranges are lost, ascending. Not empty: the job must end.
  [[nodiscard]] std::vector<std::size_t> without_copy() const;
  // The stores that live and have copies of ranges of which `store` has, or had, one, ascending.
  [[nodiscard]] std::vector<std::size_t> partners(std::size_t store) const;
  // How many further stores may be lost, whichever they are but store 0, before a range has no
  // copy left.
  [[nodiscard]] std::size_t spare() const;

 private:
  [[nodiscard]] std::size_t living(std::size_t store) const;  // copies of its ranges

  std::size_t replicas_;
  std::vector<bool> lost_;  // by store
};

}  // namespace regroup::job
