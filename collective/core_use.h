// Whether the members of a host have a core each, which decides how they wait.
#pragma once

namespace regroup::collective {

// A guess at first; counted once the affinity of every member is known. Owned by one thread.
class CoreUse {
 public:
  // `each_has_core`: the guess.
  explicit CoreUse(bool each_has_core) : each_has_core_(each_has_core) {}

  void count(bool each_has_core) {
    each_has_core_ = each_has_core;
    counted_ = true;
  }
  [[nodiscard]] bool is_counted() const { return counted_; }
  // A member that waits polls for a while before it sleeps, because its peers are running.
  [[nodiscard]] bool spins() const { return each_has_core_; }
  // Counted, and there are too few. Equal in all members, unlike spins(): false before the count.
  [[nodiscard]] bool shares_cores() const { return counted_ && !each_has_core_; }

 private:
  bool each_has_core_;
  bool counted_ = false;
};

}  // namespace regroup::collective
