// What is said of nodes that come and go, and how members of several nodes find each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/world.h"

namespace regroup::proto {

// In place of a node's number: all nodes that are there.
inline constexpr NodeId kEveryNode = 0xffffffff;

// Whoever holds the connections to agents -> coordinator. A host that comes again is another node.
struct NodeUp {
  NodeId node = 0;
  std::string name;
  std::uint32_t slots = 0;
  bool leased = false;  // by a user, beyond the size that the job has been given: it grows by them
  // Slots that it has lost may come back: the job keeps its size until it is told otherwise.
  bool for_now = false;
  bool operator==(const NodeUp&) const = default;
};
struct NodeSilent {  // not heard for a second; or again
  NodeId node = 0;
  bool silent = true;
  bool operator==(const NodeSilent&) const = default;
};
struct NodeLost {  // with all its members, which it will not speak for again
  NodeId node = 0;
  std::string why;
  bool operator==(const NodeLost&) const = default;
};
// The first nodes of the job, or of a restarted coordinator, have all been reported by NodeUp.
// Their checkpoints decided what the job resumes from: the state after step `resume`, with `shards`
// logical shards; 0 shards: as the coordinator knows already.
struct NodesKnown {
  Step resume = 0;
  std::uint32_t shards = 0;
  bool operator==(const NodesKnown&) const = default;
};

// How the others reach a member in one generation: an address that its data plane made and those of
// the others read. Sent by the member, and in PeerAddresses.
struct MemberAddress {
  MemberId member = 0;
  std::vector<std::byte> address;
  bool operator==(const MemberAddress&) const = default;
};
// From a member: its own. From an agent: of all its members of that World. To agents and members:
// of all.
struct PeerAddresses {
  Generation generation = 0;
  std::vector<MemberAddress> members;
  bool operator==(const PeerAddresses&) const = default;
};
// The connection of a member's data plane to another broke, or waits in vain. Passed on to the
// coordinator.
struct PeerSuspect {
  MemberId member = 0;
  std::string why;
  bool operator==(const PeerSuspect&) const = default;
};
// Members of the sender's World hold different states of one step. Passed on to the coordinator,
// which ends the job.
struct Diverged {
  MemberId member = 0;  // the one that says so
  std::string why;      // names the members, the step and what differs
  bool operator==(const Diverged&) const = default;
};

// Number of a state transfer, by which a joining member catches up while the others train:
// docs/design/catch_up.md. From 1 to kMaxTransfer; each incarnation of the coordinator cycles
// through 4,095 of its own.
using TransferId = std::uint32_t;
// Coordinator -> agent: serve the state after `step` and the results of later steps to learners. 0:
// the next step that no member has passed.
struct StartSource {
  TransferId transfer = 0;
  Step step = 0;
  bool operator==(const StartSource&) const = default;
};
// The reply, and sent again if the source fails: then `why` is not empty.
struct SourceStatus {
  TransferId transfer = 0;
  Step step = 0;
  std::string endpoints;  // where other agents fetch it, in the format of transport::to_string()
  std::string why;
  bool operator==(const SourceStatus&) const = default;
};
struct SourceAgent {
  NodeId node = 0;
  std::string endpoints;
  std::string name;  // of its host
  bool operator==(const SourceAgent&) const = default;
};
// Coordinator -> agent: `members` of that node learn from the state after `step`.
struct StartTarget {
  TransferId transfer = 0;
  Step step = 0;
  std::vector<MemberId> members;
  std::vector<SourceAgent> sources;
  bool operator==(const StartTarget&) const = default;
};
// A learner has applied every result up to `step`, the newest there is; or has failed: `why`.
struct TargetStatus {
  TransferId transfer = 0;
  MemberId member = 0;
  Step step = 0;
  std::string why;
  bool operator==(const TargetStatus&) const = default;
};
struct EndTransfer {
  TransferId transfer = 0;
  bool operator==(const EndTransfer&) const = default;
};

}  // namespace regroup::proto
