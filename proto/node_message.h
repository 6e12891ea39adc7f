// Messages about nodes that join and leave, about the addresses by which members of several nodes
// connect, and about state transfers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/world.h"

namespace regroup::proto {

// A NodeId that addresses all nodes of the job.
inline constexpr NodeId kEveryNode = 0xffffffff;

// Controller -> coordinator, four messages. A host that returns after NodeLost is another node.
struct NodeUp {
  NodeId node = 0;
  std::string name;
  std::uint32_t slots = 0;
  bool leased = false;  // by `regroup join`: the job's target size grows by these slots
  // Missing slots of this node may return: the job keeps its target size until the next NodeUp.
  bool for_now = false;
  bool operator==(const NodeUp&) const = default;
};
struct NodeSilent {
  NodeId node = 0;
  bool silent = true;  // true: no heartbeat for a second; false: heartbeats have resumed
  bool operator==(const NodeSilent&) const = default;
};
struct NodeLost {  // all its members are lost too; the node sends nothing more
  NodeId node = 0;
  std::string why;
  bool operator==(const NodeLost&) const = default;
};
// Follows the NodeUp of the last of the job's first nodes, or of a restarted coordinator's. By
// their checkpoints the job resumes from the state after step `resume`, with `shards` logical
// shards; 0 shards: the coordinator's journal has both.
struct NodesKnown {
  Step resume = 0;
  std::uint32_t shards = 0;
  bool operator==(const NodesKnown&) const = default;
};

// The address of a member's data plane in one generation; opaque to all but the data planes.
struct MemberAddress {
  MemberId member = 0;
  std::vector<std::byte> address;
  bool operator==(const MemberAddress&) const = default;
};
// Member -> agent: the member's own address. Agent -> coordinator: those of all its members in that
// World. Coordinator -> agent -> member: those of all members.
struct PeerAddresses {
  Generation generation = 0;
  std::vector<MemberAddress> members;
  bool operator==(const PeerAddresses&) const = default;
};
// Member -> agent -> coordinator: the sender's connection to `member` broke or timed out.
struct PeerSuspect {
  MemberId member = 0;
  std::string why;
  bool operator==(const PeerSuspect&) const = default;
};
// Member -> agent -> coordinator, which ends the job: members of the sender's World hold different
// states after the same step.
struct Diverged {
  MemberId member = 0;  // the sender
  std::string why;      // names the members, the step and what differs
  bool operator==(const Diverged&) const = default;
};

// Member -> agent -> coordinator: that generation goes on over ucx without the MPI of
// plane mpi, or staged without the NCCL of plane nccl.
struct CarrierLost {
  Generation generation = 0;
  std::string why;
  bool operator==(const CarrierLost&) const = default;
};

// Number of a state transfer (a joining member catches up while the others train:
// docs/design/catch_up.md), from 1 to kMaxTransfer. Each incarnation of the coordinator cycles
// through 4,095 numbers of its own.
using TransferId = std::uint32_t;
// Coordinator -> agent: serve the state after `step`, and the results of later steps, to learners.
// Step 0: choose the next step that no member has passed.
struct StartSource {
  TransferId transfer = 0;
  Step step = 0;
  bool operator==(const StartSource&) const = default;
};
// Agent -> coordinator: the reply to StartSource. Sent again, with `why`, if the source fails.
struct SourceStatus {
  TransferId transfer = 0;
  Step step = 0;
  std::string endpoints;  // from which other agents fetch; format: transport::to_string()
  std::string why;
  bool operator==(const SourceStatus&) const = default;
};
struct SourceAgent {
  NodeId node = 0;
  std::string endpoints;
  std::string name;  // host name
  bool operator==(const SourceAgent&) const = default;
};
// Coordinator -> agent: `members` of this node are learners; they begin with the state after
// `step`, which the agent fetches from `sources`.
struct StartTarget {
  TransferId transfer = 0;
  Step step = 0;
  std::vector<MemberId> members;
  std::vector<SourceAgent> sources;
  bool operator==(const StartTarget&) const = default;
};
// Agent -> coordinator: the learner `member` has applied all results up to `step`, the newest; or
// has failed, if `why` is not empty.
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
