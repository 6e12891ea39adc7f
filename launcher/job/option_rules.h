// Rules of a parsed command line that need the slots of the job, and what several kinds of jobs ask
// of one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/spec/options.h"

namespace regroup::job {

using spec::Options;
using spec::Verb;

using spec::kHydraFailed;
// Exit status of a command line that cannot be run.
[[nodiscard]] constexpr int refused(spec::Compat rules) {
  return rules == spec::Compat::kMpich ? kHydraFailed : 1;
}

// The slots of a host of `slots` cores for this job: what its -H or host file says, if that says
// any.
[[nodiscard]] std::uint32_t slots_for(const spec::Options& options, std::uint32_t slots);

// The members of a job whose slots are known.
struct Members {
  std::uint32_t min = 0;  // over all programs; equal unless the job is elastic
  std::uint32_t max = 0;
  std::uint32_t start = 0;            // how many an elastic job starts with
  std::uint32_t shards = 0;           // V of its World
  std::vector<std::uint32_t> counts;  // of each program
  std::vector<std::string> notes;     // a line each, for standard error
};

// The members of a job on `slots` slots, unless its -H or host file says how many there are.
// `asked`: what members_of() says. kInvalidArgument: they do not fit, or the options contradict
// themselves. Pure.
[[nodiscard]] base::Result<Members> fit_to_slots(const spec::Options& options,
                                                 spec::MemberRange asked, std::uint32_t slots);

// A job of roles, from --role or a job file.
[[nodiscard]] bool has_roles(const spec::Options& options);

// Lines on options that this job does not heed, after the notes of the options and, unless --quiet,
// `notes`;
// "" if there are none.
[[nodiscard]] std::string unheeded_options(const spec::Options& options,
                                           const std::vector<std::string>& notes = {});

}  // namespace regroup::job
