// The line of `--progress` and of `regroup top`:
//   epoch 3/15 [######....] 61 %  step 1234  loss 0.4321  1912 samples/s  4 members (generation 3)
//   ETA 2:31
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>

#include "membership/coordinator/progress_meter.h"

namespace regroup::job {

inline constexpr std::size_t kAnyWidth = std::numeric_limits<std::size_t>::max();

// Whether the line shows how much of the epoch is done as a picture, too.
enum class ProgressBar { kYes, kNo };

// The line, without a newline. What is unknown is left out. If it has more than `width` columns,
// the least important pieces are left out, and what then is too long is cut.
[[nodiscard]] std::string progress_text(const membership::TrainingProgress& progress,
                                        ProgressBar bar, std::size_t width = kAnyWidth);

// The progress in `status_json`, the reply to a StatusRequest; any text is allowed. nullopt: the
// job has no World yet, or has a fixed size, or the text is malformed.
[[nodiscard]] std::optional<membership::TrainingProgress> progress_in(
    const std::string& status_json);

}  // namespace regroup::job
