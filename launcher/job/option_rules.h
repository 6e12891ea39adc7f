// What several kinds of jobs ask of a parsed command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/spec/job_spec.h"

namespace regroup::job {

using spec::kHydraFailed;
// Exit status of a command line that cannot be run.
[[nodiscard]] constexpr int refused(spec::Compat rules) {
  return rules == spec::Compat::kMpich ? kHydraFailed : 1;
}

// True: -H or a host file says how many slots each host has.
[[nodiscard]] bool slots_given(const spec::JobSpec& spec);
// The slots of a host of `slots` cores for this job: what its -H or host file says, if that says
// any.
[[nodiscard]] std::uint32_t slots_for(const spec::JobSpec& spec, std::uint32_t slots);

// A job of roles, from --role or a job file.
[[nodiscard]] bool has_roles(const spec::JobSpec& spec);

// Lines on options that this job does not heed, after the notes of the options and, unless --quiet,
// `notes`;
// "" if there are none.
[[nodiscard]] std::string unheeded_options(const spec::JobSpec& spec,
                                           const std::vector<std::string>& notes = {});

}  // namespace regroup::job
