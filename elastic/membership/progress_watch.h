// Detects hung members: processes that run, on a host whose agent answers, but make no progress while others
// wait for them. Judges by the reports of the agents each second. Pure.
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
    std::vector<core::MemberId> members;  // none: all wait, and which one hangs is unknown
    std::string why;                      // "keeps 5 others waiting for 61 s (...): it computes step 121"
    bool minority = false;                // at most half of the members that take part
    // A minority, and each has completed steps of known length before: it is not loading data, copying state
    // or compiling its first step.
    bool sure = false;
  };

  // A new World begins. Times are on a clock that does not run while this process is stopped.
  void begin(core::Duration at);
  // A member's line as reported now.
  void update(core::Duration at, const core::SlotReport& line);
  // No member has made progress for `least` and for ten median steps, and find_stall() has not reported it
  // yet.
  [[nodiscard]] bool is_quiet(core::Duration at, core::Duration least) const;
  // find_stall() has reported it, and the silence has lasted five times as long: true once. Loading and
  // compiling do not take a member that much longer than the members that wait for it.
  [[nodiscard]] bool is_long_quiet(core::Duration at, core::Duration least);
  // Call when one of the two is true: the members of `world` that hang, among those that take part. Nothing
  // if all are at work, if a report is missing, or if a member is in a collective section, whose participants
  // and work no report shows. Reported once, until a member makes progress.
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
  std::map<core::MemberId, unsigned> steps_of_;  // completed steps seen, in all Worlds
  core::Duration quiet_since_{};
  bool reported_ = false, reported_again_ = false;
  core::Step furthest_ = 0;  // the newest step that a member has applied, and since when
  core::Duration furthest_at_{};
  std::vector<core::Duration> steps_;  // durations of the last steps; the oldest at next_
  std::size_t next_ = 0;
};

}  // namespace regroup::membership
