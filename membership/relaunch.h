// Relaunches of a job whose members have not joined: after a failure, how many members to launch
// again and when, or why the job ends. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "proto/failure.h"

namespace regroup::membership {

struct RelaunchPolicy {
  std::uint32_t max_restarts = 3;
  // Of a slot after a death; doubles with each.
  base::Duration back_off = std::chrono::milliseconds(500);
  base::Duration longest_back_off = std::chrono::seconds(60);
  base::Duration progress = std::chrono::seconds(10);  // a shorter launch made no progress
  std::uint32_t most_without_progress = 5;             // such launches in a row; then the job ends
  std::uint32_t most_same = 3;  // launches in a row that fail in the same way
};

inline constexpr std::int32_t kNoProgress = 93;  // exit status
inline constexpr std::uint32_t kUnlimited = 0xffffffff;

// Slots are numbered from 0. A launch runs on the lowest-numbered slots that are not in back-off.
class Relaunches {
 public:
  Relaunches(RelaunchPolicy policy, std::uint32_t min, std::uint32_t target);

  // Begins a launch of at most `most` members and returns its size. Call once Verdict::due has
  // passed.
  std::uint32_t launch(base::TimePoint now, std::uint32_t most = kUnlimited);

  struct Verdict {
    bool again = false;
    base::TimePoint due{};       // again: when to launch, after all processes have ended
    std::uint32_t members = 0;   // again: the size of that launch
    std::int32_t exit_code = 0;  // not again
    std::string sentence;
  };
  // The member of `rank` was the first of this launch to fail, with `status` as a shell reports it;
  // `what` is the message. `failure`: its exception, if known; the job ends after most_same equal
  // ones in a row.
  Verdict on_failure(base::TimePoint now, std::uint32_t rank, std::int32_t status,
                     const std::string& what, const proto::Failure& failure = {});

  // A launch of `members` by an earlier coordinator is still running.
  void adopt(base::TimePoint now, std::uint32_t members);
  // Earlier coordinators made this many restarts.
  void restore(std::uint32_t restarts) { restarts_ = restarts; }

  [[nodiscard]] std::uint32_t restarts() const { return restarts_; }
  [[nodiscard]] std::uint32_t launched() const { return static_cast<std::uint32_t>(used_.size()); }

 private:
  struct Slot {
    std::uint32_t failures = 0;
    base::TimePoint free_at{};
  };
  [[nodiscard]] std::uint32_t free_slots(base::TimePoint at) const;
  void put_off(base::TimePoint now, Slot& slot) const;

  RelaunchPolicy policy_;
  std::uint32_t min_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> used_;  // slot of each rank
  base::TimePoint launched_at_{};
  std::uint32_t restarts_ = 0, without_progress_ = 0;
  proto::Failure last_;     // of the launch before ...
  std::uint32_t same_ = 0;  // ... and of how many in a row
};

}  // namespace regroup::membership
