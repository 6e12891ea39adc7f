// When no member can continue, what the job's end is then, and how a job ends that has failed.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "membership/coordinator/coordinator_effects.h"
#include "membership/coordinator/member_table.h"
#include "proto/message.h"
#include "proto/world.h"

namespace regroup::membership {

struct JobEnd {
  enum class Kind : std::uint8_t {
    kFinished,      // by session.finish(), with `exit_code`
    kLost,          // all members are lost: the job fails
    kLeftOnNotice,  // what is left stands at a step boundary
  };
  Kind kind = Kind::kFinished;
  std::int32_t exit_code = 0;  // of a member that has finished
  std::string sentence;
};

// Nothing while a member of `world` takes part in it, or while the exit status of a lost one is not
// known: that may still say that the program has ended by itself. It is waited for at most
// kStatusWait. `progress_since`: failures before it were overcome, since a step was committed.
[[nodiscard]] std::optional<JobEnd> how_it_ended(base::TimePoint now, const proto::World& world,
                                                 const MemberTable& members,
                                                 base::TimePoint progress_since);

inline constexpr base::Duration kStatusWait = std::chrono::seconds(5);

// How a job fails because of `what` ("no member came up"): with the status and the failure of the
// member that was the first to fail at or after `progress_since`; with status 1 if none has failed.
struct JobFailure {
  std::int32_t exit_code = 1;
  std::string sentence;
};
[[nodiscard]] JobFailure job_failure(const std::string& what, const MemberTable& members,
                                     base::TimePoint progress_since);

// The message that ends a job for its agents. The members' state is to be saved if the job has
// failed and they have it.
[[nodiscard]] proto::JobDone job_done(std::int32_t exit_code, const std::string& reason,
                                      StateLeft left);

}  // namespace regroup::membership
