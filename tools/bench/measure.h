// Goes through types, operators and sizes and measures each in turn.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tools/bench/job.h"
#include "tools/bench/options.h"
#include "tools/bench/report.h"
#include "tools/bench/rivals.h"

namespace regroup::bench {

// Room for what `options` want between `ranks` ranks.
[[nodiscard]] Room room_for(const Options& options, int ranks);
// kResourceExhausted unless the ranks' ordinary memory is there; the arena checks its own.
[[nodiscard]] base::Status check_memory(const Options& options, int ranks);

// Called by all ranks, `rivals` being of rank 0 only; `done` is called on rank 0 with each size as
// soon as it is measured.
[[nodiscard]] base::Status measure(Job& job, const Options& options,
                                   const std::vector<std::unique_ptr<Rival>>& rivals,
                                   const std::function<void(const SizeResult&)>& done);

}  // namespace regroup::bench
