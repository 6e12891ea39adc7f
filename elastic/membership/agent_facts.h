// Which facts an agent may state: a host speaks for its own members only. docs/security.md, What agents may
// say.
#pragma once

#include <string>
#include <vector>

#include "core/message.h"
#include "core/world.h"
#include "elastic/membership/member_table.h"

namespace regroup::membership {

// What a coordinator knows when an agent speaks.
struct Known {
  const MemberTable& members;
  const core::World& world;
  core::Generation highest = 0;  // that anybody was told of
  bool one_agent = false;        // our own: it knows of members that the journal has not promised
};

// What an agent says to the coordinator; all else it may not say.
[[nodiscard]] bool is_agent_message(const core::Body& body);
// Of a member that runs there, or of one that nobody has told of and an earlier incarnation may have started:
// its journal has promised the id.
[[nodiscard]] bool may_report(const Known& known, core::NodeId node, core::MemberId member);
[[nodiscard]] std::vector<core::LineReport> lines_of_host(const Known& known, core::NodeId node,
                                                          std::vector<core::LineReport> lines);
// Contacts of the members that the World has there.
[[nodiscard]] core::Contacts contacts_of_host(const Known& known, core::NodeId node, core::Contacts contacts);
// A member there is, or was, in the World.
[[nodiscard]] bool has_member_on(const core::World& world, core::NodeId node);
// What the agent says of a member's end, where it begins with the name of that member; else our own words.
[[nodiscard]] std::string loss_message(const core::MemberLost& lost, const std::string& cause);
// What is wrong with numbers that no agent can have heard: "says ...", of its agent. Empty: nothing.
[[nodiscard]] std::string inconsistency_in(const Known& known, const core::Body& said);

}  // namespace regroup::membership
