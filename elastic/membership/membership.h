// Who should be in the next World: a pure function that returns its reason. `regroup status` prints the
// sentence.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/message.h"
#include "core/world.h"

namespace regroup::membership {

struct Policy {
  std::uint32_t min = 1;
  std::uint32_t max = 1;
  std::uint32_t target = 1;  // --start at first, then what `resize` asked for
  std::uint32_t slots = 1;   // what the allocation allows to run at once
  bool replace = true;       // start a new member for a lost one, up to the target
  std::uint32_t shards = 1;  // V
  core::Duration wait{};     // below min for longer than this: the job fails
};

enum class MemberState : std::uint8_t { kStarting, kWarm, kActive, kDraining, kDrained, kLost };

struct Member {
  core::MemberId id = 0;
  core::Seat seat;
  MemberState state = MemberState::kStarting;
  bool finished = false;
  core::Step from_step = 0;
};

struct Roster {
  std::vector<Member> members;  // lost ones stay until a World without them is announced
  bool started = false;         // a World exists
  core::TimePoint below_min_since{};
};

// The members of the next World in rank order, and why.
struct Verdict {
  std::optional<std::vector<core::MemberId>> next;
  std::string why;
};

// Survivors keep their relative order; the warm join at the end. No World below policy.min members.
[[nodiscard]] Verdict decide(core::TimePoint now, const Roster& roster, const Policy& policy);

// The plan for the open step: what is sealed stays where it is, a leaf that a survivor was computing stays
// with it, and the leaves of the lost go to the survivors with the fewest leaves to compute. `before` owned
// the leaves until now. Newcomers get none. Pure.
[[nodiscard]] std::vector<core::Seat> plan_leaves(
    core::Step step, std::uint32_t shards, const std::vector<core::Seat>& before,
    const std::vector<core::WorldMember>& next,
    const std::map<core::NodeId, std::vector<core::LineReport>>& lines);

}  // namespace regroup::membership
