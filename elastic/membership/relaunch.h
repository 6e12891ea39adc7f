// When a job whose members do not use the runtime loses one: with how many it is launched again, and when, or
// why not any more. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/failure.h"

namespace regroup::membership {

struct RelaunchPolicy {
  std::uint32_t max_restarts = 3;
  core::Duration back_off = std::chrono::milliseconds(500);  // of a slot after a death; doubles with each
  core::Duration longest_back_off = std::chrono::seconds(60);
  core::Duration progress = std::chrono::seconds(10);  // a launch that lived shorter made none
  std::uint32_t most_without_progress = 5;             // such launches in a row; then the job ends
  std::uint32_t most_same = 3;                         // launches in a row that fail in the same way
};

inline constexpr std::int32_t kNoProgress = 93;  // exit status
inline constexpr std::uint32_t kUnlimited = 0xffffffff;

// Slots are numbered from 0; a launch of n members runs on the n lowest-numbered ones that are not in
// back-off.
class Relaunches {
 public:
  Relaunches(RelaunchPolicy policy, std::uint32_t min, std::uint32_t target);

  // A launch of at most `most` members begins now; returns how many it has. Call when due() has passed.
  std::uint32_t launch(core::TimePoint now, std::uint32_t most = kUnlimited);

  struct Verdict {
    bool again = false;
    core::TimePoint due{};       // again: when to launch, once all processes are gone
    std::uint32_t members = 0;   // again: how many there will be
    std::int32_t exit_code = 0;  // not again
    std::string sentence;
  };
  // The member of `rank` of the present launch was the first to fail, with `status` as a shell gives it;
  // `what` says so. `failure`, if it is known: three in a row that are the same are the last.
  Verdict on_failure(core::TimePoint now, std::uint32_t rank, std::int32_t status, const std::string& what,
                     const core::Failure& failure = {});

  // A launch of `members` that an earlier coordinator made is found running.
  void adopt(core::TimePoint now, std::uint32_t members);
  // So many restarts were made by earlier coordinators.
  void recall(std::uint32_t restarts) { restarts_ = restarts; }

  [[nodiscard]] std::uint32_t restarts() const { return restarts_; }
  [[nodiscard]] std::uint32_t launched() const { return static_cast<std::uint32_t>(used_.size()); }

 private:
  struct Slot {
    std::uint32_t failures = 0;
    core::TimePoint free_at{};
  };
  [[nodiscard]] std::uint32_t free_slots(core::TimePoint at) const;
  void put_off(core::TimePoint now, Slot& slot) const;

  RelaunchPolicy policy_;
  std::uint32_t min_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> used_;  // slot of each rank
  core::TimePoint launched_at_{};
  std::uint32_t restarts_ = 0, without_progress_ = 0;
  core::Failure last_;      // of the launch before ...
  std::uint32_t same_ = 0;  // ... and of how many in a row
};

}  // namespace regroup::membership
