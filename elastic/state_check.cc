// The digest is taken while the state cannot change: all gradients of the next step exist, and it
// is not committed. Serves docs/design/divergence.md.
#include "elastic/state_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "elastic/allgather.h"

namespace regroup::elastic {
namespace {

constexpr proto::Step kLongestInterval = kCheckInterval << 12;
constexpr std::uint64_t kShare = 100;  // digests take at most 1/kShare of the steps' time
constexpr proto::Step kIntoWorld[] = {1, 8, 64};  // steps after a regroup, where most errors begin

// One rank's digest, the time it took, and the time of a step, in microseconds.
struct Contribution {
  std::uint64_t digest = 0;
  std::uint32_t cost = 0, step = 0;
};

std::uint32_t microseconds(base::Duration duration) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(us, 0, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

proto::Step interval_for(std::uint64_t cost, std::uint64_t step) {
  proto::Step interval = kCheckInterval;
  while (interval < kLongestInterval && cost * kShare > interval * std::max<std::uint64_t>(step, 1))
    interval *= 2;
  return interval;
}

bool StateCheck::due(const proto::World& world, proto::Step applied) const {
  if (applied == 0) return false;
  if (save_waits(world.generation, applied)) return true;
  if (!enabled_ || world.size() < 2) return false;
  if (applied % interval(world.generation) == 0) return true;
  return std::ranges::find(kIntoWorld, applied - world.resume.step()) != std::end(kIntoWorld);
}

bool StateCheck::save_waits(proto::Generation generation, proto::Step applied) const {
  return applied > 0 && pending_save_.generation == generation && pending_save_.step == applied;
}

base::Status StateCheck::prepare(State& state, proto::Step applied) {
  if (!enabled_ || (prepared_ && prepared_->step == applied)) return {};
  const base::TimePoint begin = base::SystemClock().now();
  REGROUP_ASSIGN_OR_RETURN(auto digest, StateDigest::of(state));
  prepared_ = {applied, std::move(digest), base::SystemClock().now() - begin};
  return {};
}

base::Result<std::optional<std::string>> StateCheck::compare(
    collective::Communicator& communicator, const std::vector<proto::MemberId>& members,
    const proto::World& world, State& state, proto::Step applied, base::TimePoint deadline) {
  pending_save_ = {};
  if (!enabled_ || communicator.size() < 2) return std::optional<std::string>();
  REGROUP_RETURN_IF_ERROR(prepare(state, applied));
  const base::TimePoint now = base::SystemClock().now();
  const bool timed = timed_step_ > 0 && applied > timed_step_;
  const Contribution own{
      prepared_->digest.of_all(), microseconds(prepared_->cost),
      timed ? microseconds((now - timed_at_) / static_cast<std::int64_t>(applied - timed_step_))
            : 0};
  REGROUP_ASSIGN_OR_RETURN(const auto all, allgather(communicator, own, deadline));
  std::vector<std::uint64_t> digests;
  std::uint64_t cost = 0, step = std::numeric_limits<std::uint64_t>::max();
  for (const Contribution& one : all) {
    digests.push_back(one.digest);
    cost = std::max<std::uint64_t>(cost, one.cost);
    step = std::min<std::uint64_t>(step, one.step);
  }
  const bool equal =
      std::ranges::all_of(digests, [&](std::uint64_t digest) { return digest == digests[0]; });
  if (!equal) {
    std::string text =
        describe_difference(communicator, prepared_->digest, digests, members, applied, deadline);
    if (equal_ > 0) text += fmt::format("; their states were equal after step {}", equal_);
    return std::optional(std::move(text));
  }
  equal_ = applied;
  learn_costs(world, applied, cost, step);
  return std::optional<std::string>();
}

// Every member has gathered the same values, or the World is over.
void StateCheck::learn_costs(const proto::World& world, proto::Step applied, std::uint64_t cost,
                             std::uint64_t step) {
  if (step > 0) {
    generation_ = world.generation;
    interval_ = interval_for(cost, step);
  }
  timed_step_ = applied;
  timed_at_ = base::SystemClock().now();
}

}  // namespace regroup::elastic
