// Restart policy: how often and when a failed member is replaced, when its slot is disabled, and
// when the job ends. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "membership/relaunch.h"
#include "proto/message.h"

namespace regroup::membership {

// The end of a member that was not asked to leave and had not finished.
struct Ending {
  proto::MemberId member = 0;
  std::uint32_t slot = 0;       // its number among the job's members; its successor reuses it
  proto::Failure failure = {};  // as the member reported it; unknown: only `cause` is known
  std::string cause;            // "killed by signal 11"
  bool outside = false;         // caused by something else: SIGKILL, a lost host
  bool ready = false;           // it had joined
  bool learning = false;  // it had joined, but was not in a World yet: the others trained meanwhile
  base::Duration lived{};  // time in Worlds
  proto::Step steps = 0;   // completed by this member
  proto::Step at = 0;      // the last step of the job that it knew
};

// True for the exit status, as a shell reports it, of a process that was ended from outside.
[[nodiscard]] bool ended_from_outside(std::int32_t status);
// "ValueError: bad at train.py:6", or the cause.
[[nodiscard]] std::string what_of(const proto::Failure& failure, const std::string& cause);

// Equal failures in a row, over all slots. It is journaled, and passed on to a restarted
// coordinator and to the next launch of the job.
struct FailureStreak {
  proto::Failure failure = {};  // the last of them; unknown: only `what` is known
  std::string what;             // "ValueError at train.py:12", or the cause
  proto::Step at = 0;           // step of the job at the last of them
  std::set<std::uint32_t> slots;
  std::deque<proto::MemberId> members;  // the last of them
  std::uint32_t length = 0;
  std::uint32_t launches = 1;  // launches of the job in which they happened
  bool passed_on = false;      // by an earlier launch, without a failure of the present one
  bool operator==(const FailureStreak&) const = default;
};
// The row that the next launch begins with. Only a row of exceptions is passed on: a bare exit
// status, or a checkpoint that could not be read, says nothing about the next launch.
[[nodiscard]] FailureStreak passed_on(FailureStreak row);

// Each slot has a budget of RelaunchPolicy::max_restarts. A member that trains well (a minute and
// ten steps, or one step if it was then ended from outside) restores it; a member that lived for
// ten seconds resets the back-off. A learner that is ended from outside does not use the budget up.
// A slot is disabled when its members fail three times in the same way, or three times before they
// are ready. The job ends when the same failure has met the members of all slots, at least three
// times in a row, since the next member would meet it too.
class RestartBudget {
 public:
  explicit RestartBudget(RelaunchPolicy policy) : policy_(policy) {}

  enum class What : std::uint8_t { kRestart, kDisableSlot, kEndJob };
  struct Verdict {
    What what = What::kRestart;
    std::string why;  // unless kRestart
  };
  // `others`: the slots of the members that remain in the World.
  Verdict on_ending(base::TimePoint now, const Ending& ending,
                    const std::set<std::uint32_t>& others);
  // A member of `slot` was lost, the cause is not known yet: delays its successor by 0.1 s, doubled
  // with each failure up to 10 s, and by at least 0.3 s if survivors continue.
  void put_off(base::TimePoint now, std::uint32_t slot, bool survivors_go_on);
  void restore(FailureStreak row) { row_ = std::move(row); }
  [[nodiscard]] const FailureStreak& row() const { return row_; }
  // No member is started in `slot` any more.
  void disable(std::uint32_t slot) { slots_[slot].disabled = true; }
  // The user has resized the job, or new hosts have come: earlier failures no longer count.
  void reset() { slots_.clear(), row_ = {}; }

  // The lowest slot below `slots`, not in `used`, in which a member may be started now; or none.
  [[nodiscard]] std::optional<std::uint32_t> next(base::TimePoint now, std::uint32_t slots,
                                                  const std::vector<bool>& used) const;
  // True if a slot below `slots`, not in `used`, is not disabled.
  [[nodiscard]] bool any_left(std::uint32_t slots, const std::vector<bool>& used) const;
  // The first time after `now` at which the result of next() may change.
  [[nodiscard]] std::optional<base::TimePoint> next_change(base::TimePoint now) const;

  static constexpr std::uint32_t kInARow = 3;
  static constexpr std::uint32_t kMostSlots = 8;  // that a failure must meet if there are more
  static constexpr base::Duration kWell = std::chrono::minutes(1);
  static constexpr proto::Step kWellSteps = 10;
  // Survivors finish the open step first: a starting process would take their cores.
  static constexpr base::Duration kSurvivorsFirst = std::chrono::milliseconds(300);

 private:
  struct Slot {
    std::uint32_t failures = 0;  // counted against the budget
    std::uint32_t endings = 0;   // for the back-off: since a member last lived for ten seconds
    std::uint32_t unready = 0;   // in a row, ended before they were ready
    std::string last;            // how the last one failed ...
    std::uint32_t same = 0;      // ... and how many in a row did so
    bool disabled = false;
    base::TimePoint free_at{};
  };
  [[nodiscard]] bool meets_all(const std::set<std::uint32_t>& others) const;
  void lengthen_row(const Ending& ending, const std::string& what);
  [[nodiscard]] std::string ends_why(const Ending& ending) const;

  RelaunchPolicy policy_;
  std::map<std::uint32_t, Slot> slots_;  // that have had a failure
  FailureStreak row_;
};

}  // namespace regroup::membership
