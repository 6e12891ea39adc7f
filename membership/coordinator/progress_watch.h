// Detects hung members: processes that run, on a host whose agent answers, but make no progress
// while others wait for them. Judges by the reports of the agents each second. Pure.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "proto/slot_report.h"
#include "proto/world.h"

namespace regroup::membership {

class ProgressWatch {
 public:
  struct Stall {
    std::vector<proto::MemberId> members;  // none: all wait, and which one hangs is unknown
    std::string why;        // "keeps 5 others waiting for 61 s (...): it computes step 121"
    bool minority = false;  // at most half of the members that take part
    // A minority, and each has completed steps of known length before: it is not loading data,
    // copying state or compiling its first step.
    bool sure = false;
  };

  // A new World begins. Times are on a clock that does not run while this process is stopped.
  void begin(base::Duration at);
  // A member's slot as reported now.
  void update(base::Duration at, const proto::SlotReport& slot);
  // No member has made progress for `least` and for ten median steps, and find_stall() has not
  // reported it yet.
  [[nodiscard]] bool is_quiet(base::Duration at, base::Duration least) const;
  // find_stall() has reported it, and the silence has lasted five times as long: true once. Loading
  // and compiling do not take a member that much longer than the members that wait for it.
  [[nodiscard]] bool is_long_quiet(base::Duration at, base::Duration least);
  // Call when one of the two is true: the members of `world` that hang, among those that take part.
  // Nothing if all are at work, if a report is missing, or if a member is in a collective section,
  // whose participants and work no report shows. Reported once, until a member makes progress.
  [[nodiscard]] std::optional<Stall> find_stall(
      base::Duration at, const proto::World& world,
      const std::function<bool(proto::MemberId)>& takes_part);

 private:
  struct Seen {
    proto::SlotReport slot;
    base::Duration at{};
  };
  void measure(base::Duration at, proto::Step step);
  [[nodiscard]] std::optional<base::Duration> median_step() const;

  std::map<proto::MemberId, Seen> seen_;
  std::map<proto::MemberId, unsigned> steps_of_;  // completed steps seen, in all Worlds
  base::Duration quiet_since_{};
  bool reported_ = false;
  bool reported_again_ = false;
  proto::Step furthest_ = 0;  // the newest step that a member has applied, and since when
  base::Duration furthest_at_{};
  std::vector<base::Duration> steps_;  // durations of the last steps; the oldest at next_
  std::size_t next_ = 0;
};

}  // namespace regroup::membership
