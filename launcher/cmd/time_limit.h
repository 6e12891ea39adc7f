// Time limits of what answers at once as a rule: a directory of checkpoints, a script that names hosts,
// regroup-pmi, a process that was killed. Where these are slow, on a file system behind a busy network, say,
// a user gives them more.
#pragma once

#include "core/clock.h"
#include "core/status.h"
#include "launcher/supervise/app.h"

namespace regroup::cmd {

// REGROUP_TIME_LIMIT_FACTOR of `environment`; 1 where it is not there. kInvalidArgument: it is no number from
// 0.01 to 1000.
[[nodiscard]] core::Result<double> time_limit_factor(const launcher::Environment& environment);

// `usual` times that factor, which parse_options() has checked: a bad one counts as 1.
[[nodiscard]] core::Duration time_limit(const launcher::Environment& environment, core::Duration usual);

}  // namespace regroup::cmd
