// When members compare their states, and the comparison. All members of a World decide alike, from data that
// all of them have: docs/design/divergence.md.
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

inline constexpr core::Step kCheckInterval = 256;  // steps, if a digest is cheap

class StateCheck {
 public:
  explicit StateCheck(bool enabled) : enabled_(enabled) {}

  // True if the states after `applied` must be compared in `world` before the next step commits: at each
  // interval, 1, 8 and 64 steps into the World, and when a snapshot waits for the comparison.
  [[nodiscard]] bool due(const core::World& world, core::Step applied) const;
  // True when a snapshot of `applied`, announced in `generation`, waits for the comparison.
  [[nodiscard]] bool snapshot_waits(core::Generation generation, core::Step applied) const;
  // A snapshot of the state after `step` is made, as all members of `generation` know from the vote.
  void await_snapshot(core::Generation generation, core::Step step) { snapshot_ = {generation, step}; }

  // Takes the digest of `state` after `applied` now, for all later comparisons of that state: the caller may
  // change it before them, as after the last step.
  [[nodiscard]] core::Status prepare(State& state, core::Step applied);
  // Drops the digest of prepare(): the caller continues to train.
  void forget() { prepared_.reset(); }
  // Compares the states after `applied` of the ranks of `communicator`, which are `members` of `world`.
  // Collective. Returns nothing if they are equal, else a sentence that says what differs. Errors are those
  // of the communicator and of `state`.
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
  core::Generation generation_ = 0;  // the generation that agreed on interval_
  core::Step interval_ = kCheckInterval;
  core::Step timed_step_ = 0;   // step of the last comparison, which ended ...
  core::TimePoint timed_at_{};  // ... at this time
  core::Step equal_ = 0;        // newest step after which all states were equal; 0: none
};

// Most that digests may take of the time of the steps, in steps of `step` microseconds: a power of two times
// kCheckInterval.
[[nodiscard]] core::Step interval_for(std::uint64_t cost, std::uint64_t step);

}  // namespace regroup::elastic
