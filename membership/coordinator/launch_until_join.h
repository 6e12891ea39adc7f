// Launches of a job's members, until the first of them joins.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "membership/coordinator/journal_entry.h"
#include "membership/coordinator/member_table.h"
#include "membership/relaunch.h"
#include "proto/world.h"

namespace regroup::membership {

// All members of a launch are started together. A program that never joins is only ever launched
// again as a whole, as relaunch.h decides; once a member has joined, members are replaced one by
// one and no launch follows. Pure: the caller starts and ends the processes.
class LaunchUntilJoin {
 public:
  LaunchUntilJoin(RelaunchPolicy policy, std::uint32_t min, std::uint32_t target);
  // Continues with the relaunches of an earlier incarnation, which had saved them.
  void restore(const Intent& intent);
  void save(Intent* intent) const;  // writes restarts and first_member
  // The hosts of the start have decided the size of the first launch.
  void resize(std::uint32_t target);

  [[nodiscard]] bool made() const { return members_ > 0; }  // a launch runs, or has joined
  [[nodiscard]] bool joined() const { return joined_at_.has_value(); }
  [[nodiscard]] base::TimePoint joined_at() const { return joined_at_.value_or(base::TimePoint{}); }
  [[nodiscard]] std::uint32_t restarts() const { return relaunches_.restarts(); }
  // Members of this launch have this id, or a higher one.
  [[nodiscard]] proto::MemberId first_member() const { return first_member_; }
  // When the next launch is due, once all processes of the last one have ended.
  [[nodiscard]] base::TimePoint due() const { return due_; }

  // Begins a launch of at most `most` members on the slots that are not in back-off, and returns
  // its size. The first one gets the id `first`.
  std::uint32_t begin(base::TimePoint now, std::uint32_t most, proto::MemberId first);
  // What is left of an earlier incarnation's launch.
  enum class Found : std::uint8_t {
    kNone,         // there was none, or no member of it was started
    kInterrupted,  // that incarnation ended before it had started all: another is due now
    kRuns,         // it is continued
  };
  // `members`: those that the agents know. `any_joined`: one of them has joined, so the launch does
  // not depend on its size any more.
  [[nodiscard]] Found find(base::TimePoint now, const MemberTable& members, bool any_joined);
  // The whole launch is to be made again at `due`.
  void repeat_at(base::TimePoint due) { due_ = due; }
  // Its members have joined.
  void adopt_joined(base::TimePoint now, std::uint32_t members) {
    members_ = members;
    joined_at_ = now;
  }
  // A member has joined. False: one had joined before.
  bool join(base::TimePoint now);

  // What the end of a member before the first join means for the job.
  enum class Then : std::uint8_t {
    kNothing,
    kShrink,    // the others go on without it
    kRelaunch,  // end the others; the next launch is due at due()
    kEndJob,
  };
  struct Verdict {
    Then then = Then::kNothing;
    std::int32_t exit_code = 0;  // kEndJob
    std::string sentence;        // kRelaunch, kEndJob
  };
  // `member` has ended, and `what` says how.
  [[nodiscard]] Verdict on_end(base::TimePoint now, const MemberInfo& member,
                               const std::string& what, const MemberTable& members);

 private:
  const RelaunchPolicy policy_;
  const std::uint32_t min_;
  Relaunches relaunches_;
  std::uint32_t members_ = 0;  // of this launch; 0: none was made
  proto::MemberId first_member_ = 0;
  std::optional<base::TimePoint> joined_at_;
  base::TimePoint due_{};
};

}  // namespace regroup::membership
