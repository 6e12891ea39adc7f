// Control messages as plain data: what members, agent, coordinator and control commands say to each
// other. The bytes are proto/wire.h's business; the state machines of membership see only these.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/variant.h"
#include "proto/control_message.h"
#include "proto/failure.h"
#include "proto/node_message.h"
#include "proto/slot_report.h"
#include "proto/world.h"

namespace regroup::proto {

// Member -> agent.
struct Join {  // first message on the Unix socket
  MemberId member = 0;
  std::uint64_t elements = 0;       // of a leaf
  std::uint32_t element_bytes = 4;  // 4 or 8
  std::uint64_t state_bytes = 0;    // most that its state can take
  std::string model;                // digest of names, types and shapes
  std::string fingerprint;
  bool operator==(const Join&) const = default;
};
struct Ready {
  bool operator==(const Ready&) const = default;
};  // mapped, lock held: may be admitted
struct Drained {
  bool operator==(const Drained&) const = default;
};  // stands at a step boundary after a notice

// Agent -> member.
struct Welcome {  // the memfd travels beside it
  SlotIndex slot = 0;
  std::uint32_t shards = 1;
  std::uint64_t seed = 0;
  bool operator==(const Welcome&) const = default;
};
struct Refused {
  std::string reason;
  bool operator==(const Refused&) const = default;
};
struct Excluded {  // no longer, or never, part of a World: leave with exit status 0
  std::string reason;
  bool operator==(const Excluded&) const = default;
};

// Agent -> coordinator.
struct MemberReady {
  SlotIndex slot = 0;
  Join join;  // as it said it
  bool operator==(const MemberReady&) const = default;
};
struct MemberDrained {
  MemberId member = 0;
  bool operator==(const MemberDrained&) const = default;
};
struct MemberLost {
  MemberId member = 0;
  bool joined = false;    // had said Ready
  bool finished = false;  // finish() had committed
  std::int32_t exit_code = 0;
  std::int32_t signal = 0;  // 0 if it exited
  // False: the robust futex fired; the exit status follows in a second message.
  bool reaped = false;
  std::string why;       // "member 2 (pid 4711): killed by signal 9 (SIGKILL)"
  Step step = 0;         // the last that it applied
  Failure failure = {};  // as it, or its agent, has said it; kind "": not known
  bool operator==(const MemberLost&) const = default;
};
struct Report {  // after Revoke: generation; in answer to Query: 0
  Generation generation = 0;
  std::vector<SlotReport> slots;
  bool operator==(const Report&) const = default;
};
struct HelloReply {
  Generation world = 0;
  Generation revoked_up_to = 0;
  std::vector<SlotReport> slots;
  std::optional<Join> declared;  // by the first member here, and so by all
  bool operator==(const HelloReply&) const = default;
};

// Coordinator -> agent.
struct Start {
  MemberId member = 0;
  std::uint32_t rank = 0;  // RANK and WORLD_SIZE at the start of the process
  std::uint32_t world_size = 1;
  std::uint32_t restart = 0;  // how often the job was relaunched
  bool operator==(const Start&) const = default;
};
struct Revoke {
  Generation generation = 0;
  bool operator==(const Revoke&) const = default;
};
struct Announce {
  explicit Announce(World w = {}) : world(std::make_shared<const World>(std::move(w))) {}
  std::shared_ptr<const World> world;  // never null; one for all that are told of it
  bool operator==(const Announce& other) const { return *world == *other.world; }
};
struct Notice {  // leave at the next step boundary
  MemberId member = 0;
  bool operator==(const Notice&) const = default;
};
struct Kill {  // SIGKILL, or Excluded to a member that waits at a boundary
  MemberId member = 0;
  bool gently = false;
  std::string reason;
  bool operator==(const Kill&) const = default;
};
struct Query {
  bool operator==(const Query&) const = default;
};
struct Hello {
  bool operator==(const Hello&) const = default;
};
struct JobDone {  // also coordinator -> guardian
  std::int32_t exit_code = 0;
  std::string reason;
  bool state_lost = false;  // no member is left that has it: what checkpoints have is the newest
  // A failure, but members that are left hold a state that is worth a checkpoint.
  bool save_state = false;
  bool operator==(const JobDone&) const = default;
};

using Body = base::Variant<Join, Ready, Drained, Welcome, Refused, Excluded, MemberReady,
                           MemberDrained, MemberLost, Report, HelloReply, Start, Revoke, Announce,
                           Notice, Kill, Query, Hello, JobDone, StatusRequest, StatusReply,
                           ResizeRequest, NoticeRequest, KillRequest, Reply, PeerAddresses,
                           PeerSuspect, NodeUp, NodeSilent, NodeLost, NodesKnown, StartSource,
                           SourceStatus, StartTarget, TargetStatus, EndTransfer, Diverged, Failure>;

struct Message {
  Incarnation incarnation = 0;  // of the coordinator that sent it, or that the sender last obeyed
  Body body;
  NodeId node = 0;  // between coordinator and agents: which agent
  bool operator==(const Message&) const = default;
};

}  // namespace regroup::proto
