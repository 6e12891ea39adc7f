// Measures every combination of type, operator and size.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tools/bench/job.h"
#include "tools/bench/options.h"
#include "tools/bench/report.h"
#include "tools/bench/rivals.h"

namespace regroup::bench {

// The arena memory that a run of `options` between `ranks` ranks needs.
[[nodiscard]] Room room_for(const Options& options, int ranks);
// Returns kResourceExhausted if the host has too little memory for the ranks' ordinary buffers. The
// arena checks its own memory.
[[nodiscard]] base::Status check_memory(const Options& options, int ranks);

// To be called by all ranks; `rivals` is empty except on rank 0. Calls `done` on rank 0 after each
// size.
[[nodiscard]] base::Status measure(Job& job, const Options& options,
                                   const std::vector<std::unique_ptr<Rival>>& rivals,
                                   const std::function<void(const SizeResult&)>& done);

}  // namespace regroup::bench
