// Goes through types, operators and sizes and measures each in turn.
#pragma once

#include <functional>

#include "tools/bench/job.h"
#include "tools/bench/options.h"
#include "tools/bench/report.h"

namespace regroup::bench {

// Room for what `options` want between `ranks` ranks.
[[nodiscard]] Room room_for(const Options& options, int ranks);
// kResourceExhausted unless the ranks' ordinary memory is there; the arena checks its own.
[[nodiscard]] core::Status check_memory(const Options& options, int ranks);

// Called by all ranks; `done` is called on rank 0 with each size as soon as it is measured.
[[nodiscard]] core::Status measure(Job& job, const Options& options,
                                   const std::function<void(const SizeResult&)>& done);

}  // namespace regroup::bench
