// Inputs and effects of AgentCore, as plain data. The driver performs the effects in order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/variant.h"
#include "proto/message.h"

namespace regroup::membership {

struct AgentSender {
  std::optional<proto::MemberId> member;  // empty: the coordinator
};

struct ToCoordinator {
  proto::Body body;  // sent in a Message with the agent's incarnation()
};
struct ToMember {
  proto::MemberId member = 0;
  proto::Body body;
  bool pass_memfd = false;  // send arena().memfd() along with it; with a DeviceLine its descriptor
};
struct StartMember {
  proto::Start start;
};
struct KillMember {  // SIGKILL
  proto::MemberId member = 0;
};
struct CloseMember {  // close its connection once everything queued is sent
  proto::MemberId member = 0;
};
// Call on_owner_died(slot) when the owner of the mutex arena().member_slot(slot).alive dies.
struct WatchOwner {
  proto::MemberId member = 0;
  proto::SlotIndex slot = 0;
};
struct ReleaseMember {  // call release(slot) once all earlier messages are sent
  proto::SlotIndex slot = 0;
};
struct Ring {  // call ring(slot) once all earlier messages are sent
  proto::SlotIndex slot = 0;
};
struct Fetch {  // fetch snapshot and later results from other nodes; report by on_fetched()
  proto::StartTarget transfer;
};
struct StopFetch {};  // stop at once: the snapshot's memory is about to be reused
// Create the memory of this line, and call on_device_line() or on_no_device_line().
struct CreateDeviceLine {
  proto::DeviceLine line;
};
struct DropDeviceLine {  // close its descriptor
  proto::DeviceLineId line = 0;
};
struct Warn {  // a line for the user's terminal
  std::string sentence;
};
using AgentEffect =
    base::Variant<ToCoordinator, ToMember, StartMember, KillMember, CloseMember, WatchOwner,
                  ReleaseMember, Ring, Fetch, StopFetch, CreateDeviceLine, DropDeviceLine, Warn>;
using AgentEffects = std::vector<AgentEffect>;

}  // namespace regroup::membership
