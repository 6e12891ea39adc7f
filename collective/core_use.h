// Whether each member of a host has a core of its own; that decides how members wait.
#pragma once

namespace regroup::collective {

// Starts as a guess; count() replaces the guess once the affinity of every member is known. Used by
// one thread.
class CoreUse {
 public:
  // Starts with the guess `each_has_core`.
  explicit CoreUse(bool each_has_core) : each_has_core_(each_has_core) {}

  void count(bool each_has_core) {
    each_has_core_ = each_has_core;
    counted_ = true;
  }
  [[nodiscard]] bool is_counted() const { return counted_; }
  // True if a waiting member should poll for a while before it sleeps, because its peers run.
  [[nodiscard]] bool spins() const { return each_has_core_; }
  // True if the members have been counted and outnumber their cores. Equal in all members, because
  // it is false until count(); spins() is not.
  [[nodiscard]] bool shares_cores() const { return counted_ && !each_has_core_; }

 private:
  bool each_has_core_;
  bool counted_ = false;
};

}  // namespace regroup::collective
