// What a member declares of its training's length, from which the epoch and the samples of a step
// follow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "proto/world.h"

namespace regroup::proto {

// Numbers come from other processes and may have any value; the functions then say "unknown".
struct TrainingPlan {
  std::uint64_t samples = 0;   // that an epoch uses; 0: none are declared
  std::uint64_t batch = 0;     // of them per step, or per `substeps` steps; the last may be short
  std::uint32_t substeps = 1;  // steps in a row that take the same batch
  std::uint64_t epochs = 0;    // 0: the training has no declared end
  bool operator==(const TrainingPlan&) const = default;

  // 0: unknown.
  [[nodiscard]] constexpr Step steps_per_epoch() const {
    if (samples == 0 || batch == 0 || substeps == 0) return 0;
    const std::uint64_t batches = samples / batch + (samples % batch != 0 ? 1 : 0);
    return batches <= kMaxStep / substeps ? batches * substeps : 0;
  }
  // The last step of the last epoch. None: unknown, or the training has no end.
  [[nodiscard]] constexpr std::optional<Step> last_step() const {
    const Step steps = steps_per_epoch();
    if (steps == 0 || epochs == 0 || epochs > kMaxStep / steps) return std::nullopt;
    return epochs * steps;
  }
  // Number of samples that the steps up to `step`, at most kMaxStep, have taken; 0: unknown.
  [[nodiscard]] constexpr double samples_after(Step step) const {
    const Step steps = steps_per_epoch();
    if (steps == 0) return 0;
    const std::uint64_t of_epoch = std::min(step % steps / substeps * batch, samples);
    return static_cast<double>(step / steps) * static_cast<double>(samples) +
           static_cast<double>(of_epoch);
  }
};

}  // namespace regroup::proto
