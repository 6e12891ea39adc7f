// The time limits of a job: too few members for too long, processes that do not exit or do not
// become ready in time, a finish() that some members do not know, and the interval of queries.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "membership/coordinator/member_table.h"
#include "membership/membership.h"

namespace regroup::membership {

// Remembers since when something lasts that must not last for long, and says what is due. The
// caller performs it. Times are on the coordinator's clock. Pure: no timers, no messages. Not
// thread-safe, never blocks.
class Limits {
 public:
  // Uses min, max, fixed, wait and ready_timeout.
  explicit Limits(const Policy& policy);

  // What the limits apply to.
  struct Circumstances {
    bool has_world = false;  // World 1 was formed
    bool steady = false;     // and no regroup is in progress
    // When the first member has joined. None: the job is launched, for which it has any time.
    std::optional<base::TimePoint> joined_at;
    std::uint32_t least = 1;  // members without which no World is formed
  };

  // What to do about members that wait for one that has finished and exited: they need a new World
  // to learn that everything is committed.
  enum class StragglerAction : std::uint8_t {
    kNone,
    kQuery,   // ask all members once: they may know it, and their agents have not said so yet
    kRegroup  // a second later some still do not know it
  };

  // In the order in which it is to be performed.
  struct Due {
    std::vector<proto::MemberId> kill;     // they did not exit in time: SIGKILL
    std::optional<std::string> end;        // why the job ends now; nothing below is set then
    std::vector<proto::MemberId> unready;  // these starting members were not ready in time
    StragglerAction straggling = StragglerAction::kNone;
    bool query = false;  // all members are to be asked how far they are; then call queried()
  };
  // What is due at `now`. A MemberInfo::kill_at that has passed is reset, and every limit is said
  // to be due once. Call it whenever a member has changed: a limit begins when the call sees what
  // it limits.
  [[nodiscard]] Due due(base::TimePoint now, const Circumstances& at, MemberTable* members);

  // A process was started at `now`, or found running by a restarted coordinator.
  void started(base::TimePoint now);
  // All members were asked at `now`, and are asked again after a second, or a tenth of it if
  // `soon`.
  void queried(base::TimePoint now, bool soon);
  // The next query is due at `now`, so that the next status shows fresh progress.
  void query_at(base::TimePoint now) { next_query_ = now; }
  // A new World was formed.
  void enter_world() { straggling_since_.reset(); }

  // Since when there have been fewer members than Situation::least.
  [[nodiscard]] std::optional<base::TimePoint> below_min_since() const { return below_min_since_; }
  // The first time after `now` at which something may be due that a call each second would miss.
  [[nodiscard]] std::optional<base::TimePoint> next_change(base::TimePoint now) const;

 private:
  void watch_minimum(base::TimePoint now, const Circumstances& at, const MemberTable& members);
  [[nodiscard]] std::vector<proto::MemberId> unready(base::TimePoint now, base::TimePoint joined_at,
                                                     const MemberTable& members);
  [[nodiscard]] StragglerAction straggling(base::TimePoint now, const Circumstances& at,
                                           const MemberTable& members);

  // Constant after construction.
  const std::uint32_t min_;
  const std::uint32_t max_;
  const bool fixed_;
  const base::Duration wait_;
  const base::Duration ready_timeout_;

  std::optional<base::TimePoint> below_min_since_;
  std::optional<base::TimePoint> straggling_since_;
  base::TimePoint next_query_{};
  base::TimePoint first_unready_due_ = base::TimePoint::max();  // no member is overdue before
};

}  // namespace regroup::membership
