// What the coordinator of an elastic job gets from the options of its command line.
#pragma once

#include <cstdint>
#include <optional>

#include "launcher/job/checkpoint_start.h"
#include "launcher/job/elastic_coordinator.h"
#include "launcher/spec/options.h"

namespace regroup::job {

// Options of the coordinator of the job whose files are `files`. `target`: the number of members at
// the start; 0: one for each slot. `slots`: of this host, if all members run here; none: hosts
// report their slots when their agents are up.
[[nodiscard]] CoordinatorOptions coordinator_options(const spec::Options& options,
                                                     const JobFiles& files, const WorldStart& world,
                                                     std::uint32_t target,
                                                     std::optional<std::uint32_t> slots);

}  // namespace regroup::job
