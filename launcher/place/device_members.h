// Members of a job on this machine that get a GPU each: --placement, --map-by device=NAME.
#pragma once

#include <cstdint>
#include <vector>

#include "core/status.h"
#include "launcher/alloc/allocator.h"
#include "launcher/options/options.h"
#include "launcher/place/members.h"

namespace regroup::launcher {

// It was asked for.
[[nodiscard]] bool wants_devices(const Options& options);

// As place_members(), on GPUs that CUDA_VISIBLE_DEVICES leaves and cores that the allocation has. The machine
// is read from --topology, or looked at.
[[nodiscard]] core::Result<PlacedJob> place_with_devices(const Options& options, const Allocation& allocation,
                                                         const std::vector<std::uint32_t>& counts);

}  // namespace regroup::launcher
