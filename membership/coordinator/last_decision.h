// Whether the next World has to be decided upon again.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace regroup::membership {

// A regroup that waits for members would come to the same decision at every message, for ten
// thousand members each time. Not thread-safe.
class LastDecision {
 public:
  // True if a decision at `now` would repeat the last one: neither the members nor the target have
  // changed. Otherwise the decision is made now, and remembered by what it depends on. After a
  // second it is made again for its sentence, which says how much time is left. `members`:
  // MemberTable::version().
  [[nodiscard]] bool repeats(base::TimePoint now, std::uint64_t members, std::uint32_t target) {
    const bool same = last_ && last_->members == members && last_->target == target &&
                      now < last_->at + std::chrono::seconds(1);
    if (!same) last_ = Inputs{members, target, now};
    return same;
  }
  // A regroup begins: nothing has been decided.
  void forget() { last_.reset(); }

 private:
  struct Inputs {
    std::uint64_t members;
    std::uint32_t target;
    base::TimePoint at;
  };
  std::optional<Inputs> last_;
};

}  // namespace regroup::membership
