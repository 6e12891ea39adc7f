// What the coordinator of an elastic job gets from the options of its command line.
#pragma once

#include <cstdint>
#include <optional>

#include "launcher/job/checkpoint_start.h"
#include "launcher/job/elastic_coordinator.h"
#include "launcher/job/resolve.h"

namespace regroup::job {

// Options of the coordinator of the job whose files are `files`. `slots`: of this host, if all
// members run here; none: hosts report their slots when their agents are up, and without
// --initial-size the job starts with a member for each slot.
[[nodiscard]] CoordinatorOptions coordinator_options(const spec::JobSpec& spec,
                                                     const Members& members,
                                                     const WorldStart& world, const JobFiles& files,
                                                     std::optional<std::uint32_t> slots);

}  // namespace regroup::job
