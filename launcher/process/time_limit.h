// Scales the time limits of operations that normally answer at once: opening and reading a
// checkpoint directory, a host discovery script, and on every host regroup-pmi and the end of a
// killed process (agents get the factor in Setup). A user with a slow file system raises them;
// tests lower them. A factor below 1 declares slow things hung, and leaves the limit of an agent's
// start on another host as it is.
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "launcher/process/app.h"

namespace regroup::process {

// The value of REGROUP_TIME_LIMIT_FACTOR in `environment`, 1 if it is unset. kInvalidArgument: not
// a number from 0.01 to 1000.
[[nodiscard]] base::Result<double> time_limit_factor(const spec::Environment& environment);

// `usual` times that factor. parse_options() has refused a malformed one, which counts as 1 here.
[[nodiscard]] base::Duration time_limit(const spec::Environment& environment, base::Duration usual);

}  // namespace regroup::process
