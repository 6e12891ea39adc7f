// How far the training of a job is, and how fast: `progress` in the status of the job. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "base/clock.h"
#include "proto/training_plan.h"
#include "proto/world.h"

namespace regroup::membership {

// What is unknown is empty.
struct TrainingProgress {
  proto::Step step = 0;              // the last one that is known to be committed
  std::uint32_t members = 0;         // of the newest World ...
  proto::Generation generation = 0;  // ... whose generation is 0 if there is none yet
  std::optional<double> loss;        // the last one that a member has reported
  // The epoch of the next step, from 1 on; after the last step the last one.
  std::optional<std::uint64_t> epoch;
  std::optional<std::uint64_t> epochs;  // of the whole training
  std::optional<double> epoch_done;     // its part whose steps are committed, 0 to 1
  std::optional<double> steps_per_second;
  std::optional<double> samples_per_second;
  std::optional<double> seconds_left;  // until the last step is committed, at the present speed
  bool operator==(const TrainingProgress&) const = default;
};

// Remembers when steps were seen to be committed. A step counts once: a member that catches up, or
// a step that is computed again after a loss, changes nothing. Times are on the clock of the caller
// and never decrease.
class ProgressMeter {
 public:
  // Up to `step` all steps are committed at `at`. A lower step than before is ignored.
  void observe(base::TimePoint at, proto::Step step);
  [[nodiscard]] bool has_seen_any() const { return !points_.empty(); }
  [[nodiscard]] proto::Step step() const { return points_.empty() ? 0 : points_.back().step; }
  // Fills in all but members, generation and loss. The speed is the average over the last 30 s, or
  // over the last three observed steps if they took longer; while the next one is overdue, its
  // delay counts.
  [[nodiscard]] TrainingProgress progress(base::TimePoint now,
                                          const proto::TrainingPlan& plan) const;

 private:
  struct Point {
    base::TimePoint at;
    proto::Step step = 0;
  };
  [[nodiscard]] std::optional<double> measured_seconds(base::TimePoint now) const;

  std::deque<Point> points_;  // oldest first, steps grow
};

}  // namespace regroup::membership
