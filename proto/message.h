// Control messages between members, agents, coordinator and control commands, as plain data. The
// state machines of membership see only these; proto/wire.h encodes them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/variant.h"
#include "proto/control_message.h"
#include "proto/device_health.h"
#include "proto/device_line.h"
#include "proto/failure.h"
#include "proto/node_message.h"
#include "proto/plane.h"
#include "proto/slot_report.h"
#include "proto/training_plan.h"
#include "proto/world.h"

namespace regroup::proto {

// Member -> agent.
struct Join {  // first message on the Unix socket
  MemberId member = 0;
  std::uint64_t elements = 0;       // in a leaf
  std::uint32_t element_bytes = 4;  // 4 or 8
  std::uint64_t state_bytes = 0;    // greatest size of the member's state
  std::string model;                // digest of names, types and shapes
  std::string fingerprint;
  TrainingPlan plan = {};  // for messages on progress; `model` has what members must agree on
  std::string gpu = {};  // UUID of the device with its gradients, "GPU-..."; "": the host has them
  std::uint64_t gpu_free = 0;  // free bytes of that device at join
  bool operator==(const Join&) const = default;
};
struct Ready {  // the member has mapped the arena and locked its slot: it may be admitted
  std::optional<PlaneFacts> planes = {};    // empty: of a member whose version has no planes
  std::optional<DeviceHealth> health = {};  // empty: it has no GPU, or has not checked it
  bool operator==(const Ready&) const = default;
};
struct Drained {  // the member was given notice and has reached a step boundary
  bool operator==(const Drained&) const = default;
};

// Agent -> member.
struct Welcome {  // reply to Join; carries the arena's memfd as ancillary data
  SlotIndex slot = 0;
  std::uint32_t shards = 1;
  std::uint64_t seed = 0;
  std::uint32_t device_lines = 0;   // number of DeviceLine messages that follow at once
  std::string no_device_line = {};  // why this member has none; "": it has one, or wants none
  bool operator==(const Welcome&) const = default;
};
struct Refused {
  std::string reason;
  bool operator==(const Refused&) const = default;
};
struct Excluded {  // the member is not in the World (any more): it must exit with status 0
  std::string reason;
  bool operator==(const Excluded&) const = default;
};

// Agent -> coordinator.
struct MemberReady {
  SlotIndex slot = 0;
  Join join;                                // the member's
  std::optional<PlaneFacts> planes = {};    // as in Ready
  std::optional<DeviceHealth> health = {};  // as in Ready
  bool operator==(const MemberReady&) const = default;
};
struct MemberDrained {
  MemberId member = 0;
  bool operator==(const MemberDrained&) const = default;
};
struct MemberLost {
  MemberId member = 0;
  bool joined = false;    // the member had sent Ready
  bool finished = false;  // the member had committed finish()
  std::int32_t exit_code = 0;
  std::int32_t signal = 0;  // 0 if it exited
  // False: only its robust mutex was released; a second message will have the exit status.
  bool reaped = false;
  std::string why;                  // "member 2 (pid 4711): killed by signal 9 (SIGKILL)"
  Step step = 0;                    // last step that the member applied
  Failure failure = {};             // reported by the member or its agent; kind "": not known
  std::optional<double> loss = {};  // that the member recorded last; finite
  bool operator==(const MemberLost&) const = default;
};
struct Report {
  Generation generation = 0;  // in reply to Revoke: the revoked one; in reply to Query: 0
  std::vector<SlotReport> slots;
  bool operator==(const Report&) const = default;
};
struct MemberPlanes {
  MemberId member = 0;
  PlaneFacts planes;
  bool operator==(const MemberPlanes&) const = default;
};
struct HelloReply {
  Generation world = 0;  // of the newest World that the agent has published; 0: none
  Generation revoked_up_to = 0;
  std::vector<SlotReport> slots;
  std::optional<Join> declared;           // the first member's Join, with which all others agree
  std::vector<MemberPlanes> planes = {};  // of the members of the node that are ready
  bool operator==(const HelloReply&) const = default;
};

// Coordinator -> agent.
struct Start {
  MemberId member = 0;
  std::uint32_t rank = 0;  // RANK and WORLD_SIZE at the start of the process
  std::uint32_t world_size = 1;
  std::uint32_t restart = 0;  // number of times the job was relaunched
  // UUIDs of GPUs of the node that were refused; the member gets others, if there are any.
  std::vector<std::string> refused_gpus = {};
  bool operator==(const Start&) const = default;
};
struct Revoke {
  Generation generation = 0;
  bool operator==(const Revoke&) const = default;
};
struct Announce {
  explicit Announce(World w = {}) : world(std::make_shared<const World>(std::move(w))) {}
  std::shared_ptr<const World> world;  // never null; shared by the messages to all agents
  bool operator==(const Announce& other) const { return *world == *other.world; }
};
struct Notice {  // the member is to leave at its next step boundary
  MemberId member = 0;
  bool operator==(const Notice&) const = default;
};
struct Kill {
  MemberId member = 0;
  bool gently = false;  // send Excluded to a member that waits at a boundary, instead of SIGKILL
  std::string reason;
  bool operator==(const Kill&) const = default;
};
struct Query {  // asks for a Report of progress, for `regroup status`
  bool operator==(const Query&) const = default;
};
struct Hello {  // from a restarted coordinator; asks for a HelloReply
  bool operator==(const Hello&) const = default;
};
struct JobDone {  // also coordinator -> guardian
  std::int32_t exit_code = 0;
  std::string reason;
  bool state_lost = false;  // no living member has the state: the newest checkpoint is all there is
  // The job failed, but living members hold a state that should be saved.
  bool save_state = false;
  bool operator==(const JobDone&) const = default;
};

using Body =
    base::Variant<Join, Ready, Drained, Welcome, Refused, Excluded, MemberReady, MemberDrained,
                  MemberLost, Report, HelloReply, Start, Revoke, Announce, Notice, Kill, Query,
                  Hello, JobDone, StatusRequest, StatusReply, ResizeRequest, NoticeRequest,
                  KillRequest, Reply, PeerAddresses, PeerSuspect, NodeUp, NodeSilent, NodeLost,
                  NodesKnown, StartSource, SourceStatus, StartTarget, TargetStatus, EndTransfer,
                  Diverged, Failure, DeviceLine, AllocateDeviceMemory, DeviceMemory, CarrierLost>;

struct Message {
  Incarnation incarnation = 0;  // the coordinator's if it is the sender, else of the last one heard
  Body body;
  NodeId node = 0;  // between coordinator and agents: which agent
  bool operator==(const Message&) const = default;
};

}  // namespace regroup::proto
