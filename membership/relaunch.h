// Relaunches of a job whose members have not joined yet: decides after a failure how many members
// to launch again and when, or why the job ends. No I/O, no clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "proto/failure.h"

namespace regroup::membership {

struct RelaunchPolicy {
  std::uint32_t max_restarts = 3;
  // How long a slot is not used after its member died; doubles with each death.
  base::Duration back_off = std::chrono::milliseconds(500);
  base::Duration longest_back_off = std::chrono::seconds(60);
  base::Duration progress = std::chrono::seconds(10);  // a launch that ends earlier is short
  std::uint32_t most_without_progress = 5;             // the job ends after so many short launches
  std::uint32_t most_same = 3;  // ... or after so many launches in a row that fail in the same way
};

inline constexpr std::int32_t kNoProgress = 93;  // exit status of a job that ends for these reasons
inline constexpr std::uint32_t kUnlimited = 0xffffffff;

// Slots are numbered from 0. A launch runs on the lowest-numbered slots that are not in back-off.
class Relaunches {
 public:
  Relaunches(RelaunchPolicy policy, std::uint32_t min, std::uint32_t target);

  // Begins a launch of at most `most` members and returns their number. Call it once Verdict::due
  // has passed.
  std::uint32_t launch(base::TimePoint now, std::uint32_t most = kUnlimited);

  struct Verdict {
    bool again = false;          // launch again; else end the job
    base::TimePoint due{};       // if again: when, provided that all processes have ended
    std::uint32_t members = 0;   // if again: number of members
    std::int32_t exit_code = 0;  // if not
    std::string sentence;        // the reason, for the user
  };
  // Call when the first member of a launch has failed. `status`: its exit status as a shell reports
  // it; `what`: the message for the user; `failure`: its exception, if known.
  Verdict on_failure(base::TimePoint now, std::uint32_t rank, std::int32_t status,
                     const std::string& what, const proto::Failure& failure = {});

  // Takes over a running launch of `members` members from an earlier coordinator.
  void adopt(base::TimePoint now, std::uint32_t members);
  // Sets the number of restarts by earlier coordinators.
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
  std::vector<std::uint32_t> used_;  // the slot of each rank
  base::TimePoint launched_at_{};
  std::uint32_t restarts_ = 0, without_progress_ = 0;
  proto::Failure last_;     // failure of the previous launch
  std::uint32_t same_ = 0;  // number of launches in a row with that failure
};

}  // namespace regroup::membership
