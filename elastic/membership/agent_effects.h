// Inputs and effects of AgentCore, as plain data. The driver performs the effects in order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/message.h"
#include "core/variant.h"

namespace regroup::membership {

struct AgentSender {
  std::optional<core::MemberId> member;  // nothing: the coordinator sent it
};

struct ToCoordinator {
  core::Body body;  // sent in a Message with the agent's incarnation()
};
struct ToMember {
  core::MemberId member = 0;
  core::Body body;
  bool pass_memfd = false;  // send arena().memfd() along with it
};
struct StartMember {
  core::Start start;
};
struct KillMember {  // SIGKILL
  core::MemberId member = 0;
};
struct CloseMember {  // close its connection once everything queued is sent
  core::MemberId member = 0;
};
struct WatchLine {  // call on_line_dead(slot) when the owner of arena().member_slot(slot).alive dies
  core::MemberId member = 0;
  core::SlotIndex slot = 0;
};
struct ReleaseMember {  // call release(slot) once the messages before it are sent
  core::SlotIndex slot = 0;
};
struct Ring {  // call ring(slot) after the messages before it are sent
  core::SlotIndex slot = 0;
};
struct Fetch {  // fetch the snapshot and the results after it from other nodes: on_fetched()
  core::StartTarget transfer;
};
struct StopFetch {};  // at once: the snapshot's memory is about to be reused
struct Warn {         // a line for the user's terminal
  std::string sentence;
};
using AgentEffect = core::Variant<ToCoordinator, ToMember, StartMember, KillMember, CloseMember, WatchLine,
                                  ReleaseMember, Ring, Fetch, StopFetch, Warn>;
using AgentEffects = std::vector<AgentEffect>;

}  // namespace regroup::membership
