// A sliding window over the points at which a new step was seen.
#include "membership/coordinator/progress_meter.h"

#include <algorithm>
#include <chrono>

namespace regroup::membership {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr base::Duration kWindow = std::chrono::seconds(30);
constexpr std::size_t kLeastPoints = 4;  // of slow steps, whatever their age
// Points that are closer are merged, so that their number is bounded.
constexpr base::Duration kMergedWithin = std::chrono::milliseconds(100);
constexpr Seconds kLeastMeasured(0.5);  // a shorter time says nothing about the speed

}  // namespace

void ProgressMeter::observe(base::TimePoint at, proto::Step step) {
  step = std::min(step, proto::kMaxStep);
  if (!points_.empty() && step <= points_.back().step) return;
  if (points_.size() >= 2 && at - points_.back().at < kMergedWithin) {
    points_.back().step = step;
    return;
  }
  points_.push_back({at, step});
  while (points_.size() > kLeastPoints && points_.front().at < at - kWindow) points_.pop_front();
}

// The time in which the steps of the window were committed. The next step is overdue once it has
// taken longer than the average time between two points.
std::optional<double> ProgressMeter::measured_seconds(base::TimePoint now) const {
  if (points_.size() < 2) return std::nullopt;
  const Seconds between = points_.back().at - points_.front().at;
  if (between < kLeastMeasured) return std::nullopt;
  const Seconds expected = between / static_cast<double>(points_.size() - 1);
  const Seconds overdue = now - points_.back().at - expected;
  return (between + std::max(overdue, Seconds(0))).count();
}

TrainingProgress ProgressMeter::progress(base::TimePoint now,
                                         const proto::TrainingPlan& plan) const {
  TrainingProgress out{.step = step()};
  const std::optional<proto::Step> last = plan.last_step();
  const bool over = last && out.step >= *last;
  if (const proto::Step steps = plan.steps_per_epoch(); steps > 0) {
    const std::uint64_t before = over ? plan.epochs - 1 : out.step / steps;  // whole epochs
    out.epoch = before + 1;
    out.epoch_done =
        std::min(static_cast<double>(out.step - before * steps) / static_cast<double>(steps), 1.0);
    if (plan.epochs > 0) out.epochs = plan.epochs;
  }
  const std::optional<double> measured = measured_seconds(now);
  if (!measured) return out;
  const proto::Step first = points_.front().step;
  out.steps_per_second = static_cast<double>(out.step - first) / *measured;
  if (out.epoch)
    out.samples_per_second = (plan.samples_after(out.step) - plan.samples_after(first)) / *measured;
  if (last && !over)
    out.seconds_left = static_cast<double>(*last - out.step) / *out.steps_per_second;
  return out;
}

}  // namespace regroup::membership
