// How often a member that failed is replaced, when, and when no more. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/message.h"
#include "elastic/membership/relaunch.h"

namespace regroup::membership {

// How a member ended that neither was asked to nor had finished.
struct Ending {
  core::MemberId member = 0;
  std::uint32_t slot = 0;      // its number among the members that the job keeps; its successor has it again
  core::Failure failure = {};  // what it said of itself; unknown: only its exit status tells
  std::string cause;           // "killed by signal 11"
  bool outside = false;        // a cause that somebody else gives: SIGKILL, a lost host
  bool ready = false;          // it had joined
  bool learning = false;       // ... and was in no World yet: the others trained meanwhile
  core::Duration lived{};      // in Worlds
  core::Step steps = 0;        // that it took itself
  core::Step at = 0;           // last step of the job that it knew of
};

// An exit status, as a shell gives it, of a process that somebody else ended.
[[nodiscard]] bool ended_from_outside(std::int32_t status);
// "ValueError: bad at train.py:6", or the cause.
[[nodiscard]] std::string what_of(const core::Failure& failure, const std::string& cause);

// Failures in a row, in all slots, that are the same. A successor of this coordinator and the next launch of
// the job go on from it.
struct FailureRow {
  core::Failure failure = {};  // the last of them; unknown: `what` alone tells
  std::string what;            // "ValueError at train.py:12", or the cause
  core::Step at = 0;           // of the job, at the last of them
  std::set<std::uint32_t> slots;
  std::deque<core::MemberId> members;  // the last of them
  std::uint32_t length = 0;
  std::uint32_t launches = 1;  // of the job, which they were in
  bool passed_on = false;      // by an earlier launch, and the present one has added none
  bool operator==(const FailureRow&) const = default;
};
// What the next launch begins with: a row of exceptions. One of which nothing but an exit status is known, or
// a checkpoint that could not be read, says nothing of the next launch.
[[nodiscard]] FailureRow passed_on(FailureRow row);

// Each slot has a budget of RelaunchPolicy::max_restarts, which a member gives back that trains well: for a
// minute and ten steps, or, if it was ended from outside, for a step. The back-off is given back by one that
// lived for ten seconds. A learner that is ended from outside is
// replaced as often as that happens, after its back-off. A slot whose members fail three times in the same
// way, or before they are ready, is given up at once. A failure that meets the members of all slots, three
// times in a row, ends the job: whoever comes next meets it as well.
class RestartBudget {
 public:
  explicit RestartBudget(RelaunchPolicy policy) : policy_(policy) {}

  enum class What : std::uint8_t { kRestart, kDisableSlot, kEndJob };
  struct Verdict {
    What what = What::kRestart;
    std::string why;  // of the last two
  };
  // `others`: slots of the members that are left in the World.
  Verdict on_ending(core::TimePoint now, const Ending& ending, const std::set<std::uint32_t>& others);
  // A member of `slot` was lost, how is not known yet: not before 0.1 s, doubled with each failure up to 10
  // s; nor before 0.3 s where survivors go on.
  void put_off(core::TimePoint now, std::uint32_t slot, bool survivors_go_on);
  void recall(FailureRow row) { row_ = std::move(row); }
  [[nodiscard]] const FailureRow& row() const { return row_; }
  // Somebody has mended it, or there are other hosts.
  void reset() { slots_.clear(), row_ = {}; }

  // The lowest slot below `slots` in which a member may be started now, or none. Those in `used` have one.
  [[nodiscard]] std::optional<std::uint32_t> next(core::TimePoint now, std::uint32_t slots,
                                                  const std::vector<bool>& used) const;
  // Slots below `slots`, not in `used`, that are not given up: a member may still be started there.
  [[nodiscard]] bool any_left(std::uint32_t slots, const std::vector<bool>& used) const;
  // The first time after `now` at which next() may have another answer.
  [[nodiscard]] std::optional<core::TimePoint> next_change(core::TimePoint now) const;

  static constexpr std::uint32_t kInARow = 3;
  static constexpr std::uint32_t kMostSlots = 8;  // that have to meet a failure where there are more
  static constexpr core::Duration kWell = std::chrono::minutes(1);
  static constexpr core::Step kWellSteps = 10;
  // They finish the open step: a process that starts wants their cores.
  static constexpr core::Duration kSurvivorsFirst = std::chrono::milliseconds(300);

 private:
  struct Slot {
    std::uint32_t failures = 0;  // that are charged
    std::uint32_t endings = 0;   // for the back-off: since one lived for the longest that there is
    std::uint32_t unready = 0;   // in a row, ended before they were ready
    std::string last;            // how the last one failed ...
    std::uint32_t same = 0;      // ... and how many in a row did so
    bool disabled = false;
    core::TimePoint free_at{};
  };
  [[nodiscard]] bool meets_all(const std::set<std::uint32_t>& others) const;
  void lengthen_row(const Ending& ending, const std::string& what);
  [[nodiscard]] std::string ends_why(const Ending& ending) const;

  RelaunchPolicy policy_;
  std::map<std::uint32_t, Slot> slots_;  // of which there is something to say
  FailureRow row_;
};

}  // namespace regroup::membership
