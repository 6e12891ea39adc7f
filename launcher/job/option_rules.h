// Rules of a parsed command line that need the slots of the job, and what several kinds of jobs ask
// of one.
#pragma once

#include <cstdint>
#include <string>

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

// What stands in `slots` for a job, unless its -H or host file says how many there are: fills in
// min, max, start, shards and the count of a single app that were not given, and refuses what does
// not fit.
[[nodiscard]] base::Status fit_to_slots(spec::Options& options, std::uint32_t slots);

// A job of roles, from --role or a job file.
[[nodiscard]] bool has_roles(const spec::Options& options);

// A sentence on options that this job does not heed; "" if there are none.
[[nodiscard]] std::string unheeded_options(const spec::Options& options);

}  // namespace regroup::job
