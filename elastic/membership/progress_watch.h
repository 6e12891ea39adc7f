// Who keeps the others from getting on: a member that runs, on a host that is heard, and stands still while
// others wait for it. Seen in what the agents report each second; pure.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/slot_report.h"
#include "core/world.h"

namespace regroup::membership {

class ProgressWatch {
 public:
  struct Stall {
    std::vector<core::MemberId> members;  // none: all wait, and nothing tells for whom
    std::string why;                      // "keeps 5 others waiting for 61 s (...): it computes step 121"
    bool minority = false;                // they are at most half of those that take part
    // They are, and each has taken steps before of which the length is
    // known: it does not load its data, copy a state or compile its first step.
    bool sure = false;
  };

  // A new World begins. Times are of a clock that does not run while this process is stopped.
  void begin(core::Duration at);
  // What a member of it says of itself now.
  void update(core::Duration at, const core::LineReport& line);
  // Nobody has done anything for as long as `least`, and as ten median steps, and find_stall() has not said
  // so.
  [[nodiscard]] bool is_quiet(core::Duration at, core::Duration least) const;
  // find_stall() has said so, and nobody has done anything for five times as long: says it once more. A
  // member that has taken no steps before does not load or compile for so much longer than those that wait
  // for it.
  [[nodiscard]] bool is_long_quiet(core::Duration at, core::Duration least);
  // Then: which of those members of `world` that take part stand still. Once, until somebody gets on. Nothing
  // where all are at work, one was not heard just now, or some are in a region: then who is a party to it,
  // and whether it computes, no report tells.
  [[nodiscard]] std::optional<Stall> find_stall(core::Duration at, const core::World& world,
                                                const std::function<bool(core::MemberId)>& takes_part);

 private:
  struct Seen {
    core::SlotReport line;
    core::Duration at{};
  };
  void measure(core::Duration at, core::Step step);
  [[nodiscard]] std::optional<core::Duration> median_step() const;

  std::map<core::MemberId, Seen> seen_;
  std::map<core::MemberId, unsigned> steps_of_;  // that it was seen to take, in all Worlds
  core::Duration quiet_since_{};
  bool reported_ = false, reported_again_ = false;
  core::Step furthest_ = 0;  // that anybody has applied, and since when
  core::Duration furthest_at_{};
  std::vector<core::Duration> steps_;  // how long the last ones took; the oldest at next_
  std::size_t next_ = 0;
};

}  // namespace regroup::membership
