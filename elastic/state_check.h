// Decides when members compare their states, and compares them. All members of a World decide
// alike, from data that all of them have: docs/design/divergence.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/state_digest.h"
#include "proto/world.h"
#include "regroup/communicator.h"
#include "regroup/state.h"

namespace regroup::elastic {

inline constexpr proto::Step kCheckInterval = 256;  // steps, if a digest is cheap

class StateCheck {
 public:
  explicit StateCheck(bool enabled) : enabled_(enabled) {}

  // True if the states after `applied` must be compared in `world` before the next step commits: at
  // each interval, 1, 8 and 64 steps into the World, and when a save waits for the comparison.
  [[nodiscard]] bool due(const proto::World& world, proto::Step applied) const;
  // True when a save of `applied`, announced in `generation`, waits for the comparison.
  [[nodiscard]] bool save_waits(proto::Generation generation, proto::Step applied) const;
  // Records that a save of the state after `step` is being made; all members of `generation`
  // know it from the vote.
  void await_save(proto::Generation generation, proto::Step step) {
    pending_save_ = {generation, step};
  }

  // Computes the digest of `state` after `applied` now, for later comparisons, since the caller may
  // change the state before them (after the last step, for example).
  [[nodiscard]] base::Status prepare(State& state, proto::Step applied);
  // Drops the digest of prepare(), because the caller continues to train.
  void forget() { prepared_.reset(); }
  // Compares the states after `applied` of the ranks of `communicator`, which are `members` of
  // `world`. Collective. Returns nothing if they are equal, else a sentence that says what differs.
  // Errors are those of the communicator and of `state`.
  [[nodiscard]] base::Result<std::optional<std::string>> compare(
      collective::Communicator& communicator, const std::vector<proto::MemberId>& members,
      const proto::World& world, State& state, proto::Step applied, base::TimePoint deadline);

 private:
  struct PendingSave {
    proto::Generation generation = 0;
    proto::Step step = 0;
  };
  struct Prepared {
    proto::Step step = 0;
    StateDigest digest;
    base::Duration cost{};
  };

  [[nodiscard]] proto::Step interval(proto::Generation generation) const {
    return generation == generation_ ? interval_ : kCheckInterval;
  }
  void learn_costs(const proto::World& world, proto::Step applied, std::uint64_t cost,
                   std::uint64_t step);

  const bool enabled_;
  PendingSave pending_save_;
  std::optional<Prepared> prepared_;
  proto::Generation generation_ = 0;  // the generation that agreed on interval_
  proto::Step interval_ = kCheckInterval;
  proto::Step timed_step_ = 0;  // step of the last comparison
  base::TimePoint timed_at_{};  // when it ended
  proto::Step equal_ = 0;       // newest step after which all states were equal; 0: none
};

// The interval in steps, a power of two times kCheckInterval, at which digests of `cost`
// microseconds take at most their share of the time of steps of `step` microseconds.
[[nodiscard]] proto::Step interval_for(std::uint64_t cost, std::uint64_t step);

}  // namespace regroup::elastic
