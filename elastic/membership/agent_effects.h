// What goes into AgentCore and what it wants done, as plain data; its driver does it in order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/message.h"
#include "core/variant.h"

namespace regroup::membership {

struct AgentSender {
  std::optional<core::MemberId> member;  // nothing: the coordinator
};

struct ToCoordinator {
  core::Body body;  // goes out in a Message with the agent's incarnation()
};
struct ToMember {
  core::MemberId member = 0;
  core::Body body;
  bool pass_memfd = false;  // arena().memfd() travels beside it
};
struct StartMember {
  core::Start start;
};
struct KillMember {  // SIGKILL
  core::MemberId member = 0;
};
struct CloseMember {  // its connection, once what was sent is out
  core::MemberId member = 0;
};
struct WatchLine {  // call on_line_dead(slot) when the owner of arena().member_slot(slot).alive is dead
  core::MemberId member = 0;
  core::SlotIndex slot = 0;
};
struct LetGo {  // call let_go(slot): its member waits there, what was sent before is on its way
  core::SlotIndex slot = 0;
};
struct Ring {  // call ring(slot): what was sent to its member before is on its way
  core::SlotIndex slot = 0;
};
struct Fetch {  // the snapshot and the results behind it from other nodes: on_fetched_*()
  core::StartTarget transfer;
};
struct StopFetch {};  // at once: the memory is needed for something else
struct Warn {         // a line for the user's terminal
  std::string sentence;
};
using AgentEffect = core::Variant<ToCoordinator, ToMember, StartMember, KillMember, CloseMember, WatchLine,
                                  LetGo, Ring, Fetch, StopFetch, Warn>;
using AgentEffects = std::vector<AgentEffect>;

}  // namespace regroup::membership
