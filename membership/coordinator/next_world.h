// What the next World is: its resume position, who gives the state to whom, and the plan.
// docs/design/architecture.md section 3, "A committed step is applied by all survivors". Pure.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "membership/coordinator/member_table.h"
#include "membership/coordinator/report_round.h"
#include "proto/world.h"

namespace regroup::membership {

// What has been decided about a World before its content is worked out.
struct WorldRequest {
  proto::Incarnation incarnation = 0;    // of the coordinator
  proto::Generation generation = 0;      // higher than any that an agent knows
  std::uint32_t shards = 1;              // V
  proto::Step checkpoint = 0;            // step whose state every member can read from disk
  std::vector<proto::MemberId> members;  // in rank order, all in the table
  std::string why;
  std::optional<proto::Plane> plane = {};  // by which they sum gradients ...
  std::string plane_why = {};              // ... and why
};

// No member of the next World has the state of `step`, which was committed: the job cannot resume
// from memory.
struct StateIsLost {
  proto::Step step = 0;
};

// Works out the World that follows `before` (generation 0: none) from the reports of all nodes.
// The resume position is the newest one that any member, dead ones included, is known to have
// committed or applied: a step that one member may have applied must be applied by all.
[[nodiscard]] std::variant<proto::World, StateIsLost> next_world(
    const WorldRequest& request, const proto::World& before, const MemberTable& members,
    const ReportRound::Reports& reports);

}  // namespace regroup::membership
