// What the coordinator accepts from an agent: facts about the members of its own host only.
// docs/guide/security.md, What agents may say. Pure.
#pragma once

#include <string>
#include <vector>

#include "membership/coordinator/member_table.h"
#include "proto/message.h"
#include "proto/world.h"

namespace regroup::membership {

// The coordinator's state when a message of an agent is checked.
struct CoordinatorView {
  const MemberTable& members;
  const proto::World& world;
  proto::Generation highest = 0;  // the highest generation that was announced to any agent
  // The job began with its nodes and gets no others: ids are not reserved in the journal.
  bool fixed_nodes = false;
};

// True for the message types that agents send to the coordinator.
[[nodiscard]] bool is_agent_message(const proto::Body& body);
// True if `member` runs on `node`, or is unknown and may have been started by an earlier
// incarnation, whose journal reserved its id.
[[nodiscard]] bool may_report(const CoordinatorView& known, proto::NodeId node,
                              proto::MemberId member);
// The reports of slots and the addresses among the given ones that `node` may report.
[[nodiscard]] std::vector<proto::SlotReport> reports_of_host(const CoordinatorView& known,
                                                             proto::NodeId node,
                                                             std::vector<proto::SlotReport> slots);
[[nodiscard]] proto::PeerAddresses addresses_of_host(const CoordinatorView& known,
                                                     proto::NodeId node,
                                                     proto::PeerAddresses addresses);
// True if a member of `world` runs, or ran, on `node`.
[[nodiscard]] bool has_member_on(const proto::World& world, proto::NodeId node);
// The agent's message about a member's end if it names that member, else one made of `cause`.
[[nodiscard]] std::string loss_message(const proto::MemberLost& lost, const std::string& cause);
// Checks generation numbers that no agent can know: "says that ...", or empty if they are possible.
[[nodiscard]] std::string inconsistency_in(const CoordinatorView& known, const proto::Body& said);

}  // namespace regroup::membership
