// When members compare their states, and the comparison itself. Every member decides the same from what all
// of its World know: docs/design/divergence.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collective/communicator.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/world.h"
#include "elastic/state.h"
#include "elastic/state_digest.h"

namespace regroup::elastic {

inline constexpr core::Step kCheckInterval = 256;  // steps, where a digest is cheap

class StateCheck {
 public:
  explicit StateCheck(bool enabled) : enabled_(enabled) {}

  // True when the states after `applied` are to be compared in `world`, before the step that follows commits:
  // at each interval, 1, 8 and 64 steps into the World, and where a snapshot waits for it.
  [[nodiscard]] bool due(const core::World& world, core::Step applied) const;
  // True when a snapshot of `applied`, announced in `generation`, waits for the comparison.
  [[nodiscard]] bool snapshot_waits(core::Generation generation, core::Step applied) const;
  // All of `generation` know, since they voted for `step`, that a snapshot is made of the state after it.
  void await_snapshot(core::Generation generation, core::Step step) { snapshot_ = {generation, step}; }

  // Takes the digest of `state` after `applied` now, for the next compare(): the caller may change the state
  // before that, as some do after the last step. It serves each comparison of that state.
  [[nodiscard]] core::Status prepare(State& state, core::Step applied);
  // What prepare() has taken is void: the caller goes on.
  void forget() { prepared_.reset(); }
  // Compares the states after `applied` of the ranks of `communicator`, which are `members` of `world`.
  // Collective. Nothing: they are equal; else a sentence that says what differs. Errors are those of the
  // communicator and of `state`.
  [[nodiscard]] core::Result<std::optional<std::string>> compare(collective::Communicator& communicator,
                                                                 const std::vector<core::MemberId>& members,
                                                                 const core::World& world, State& state,
                                                                 core::Step applied,
                                                                 core::TimePoint deadline);

 private:
  struct Snapshot {
    core::Generation generation = 0;
    core::Step step = 0;
  };
  struct Prepared {
    core::Step step = 0;
    StateDigest digest;
    core::Duration cost{};
  };

  [[nodiscard]] core::Step interval(core::Generation generation) const {
    return generation == generation_ ? interval_ : kCheckInterval;
  }
  void learn_costs(const core::World& world, core::Step applied, std::uint64_t cost, std::uint64_t step);

  const bool enabled_;
  Snapshot snapshot_;
  std::optional<Prepared> prepared_;
  core::Generation generation_ = 0;  // in which interval_ was agreed
  core::Step interval_ = kCheckInterval;
  core::Step timed_step_ = 0;   // a comparison ended then ...
  core::TimePoint timed_at_{};  // ... at this time
  core::Step equal_ = 0;        // newest step after which all were equal; 0: none is known
};

// Most that digests may take of the time of the steps, in steps of `step` microseconds: a power of two times
// kCheckInterval.
[[nodiscard]] core::Step interval_for(std::uint64_t cost, std::uint64_t step);

}  // namespace regroup::elastic
