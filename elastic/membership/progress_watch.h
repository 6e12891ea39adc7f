// Who keeps the others from getting on: a member that runs, on a host that is heard, and stands still while
// others wait for it. Seen in what the agents report each second; pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/line_report.h"
#include "core/world.h"

namespace regroup::membership {

class ProgressWatch {
 public:
  struct Standstill {
    std::vector<core::MemberId> who;  // none: all wait, and nothing tells for whom
    std::string why;                  // "keeps 5 others waiting for 61 s (...): it computes step 121"
  };

  // A new World begins. Times are of a clock that does not run while this process is stopped.
  void begin(core::Duration at);
  // What a member of it says of itself now.
  void see(core::Duration at, const core::LineReport& line);
  // Nobody has done anything for as long as `least`, and as ten median steps, and look() has not said so.
  [[nodiscard]] bool may_speak(core::Duration at, core::Duration least) const;
  // Then: which of `members` (of `world`: those that take part) stand still. Once, until somebody gets on.
  // Nothing where all are at work, or one has not been seen yet.
  [[nodiscard]] std::optional<Standstill> look(core::Duration at, const core::World& world,
                                               const std::vector<core::MemberId>& members);

 private:
  [[nodiscard]] std::optional<core::Duration> median_step() const;

  std::map<core::MemberId, core::LineReport> seen_;
  core::Duration quiet_since_{};
  bool said_ = false;
  core::Step furthest_ = 0;  // that anybody has applied, and since when
  core::Duration furthest_at_{};
  std::vector<core::Duration> steps_;  // how long the last ones took; the oldest at next_
  std::size_t next_ = 0;
};

}  // namespace regroup::membership
