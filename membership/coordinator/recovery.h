// What a restarted coordinator learns from the agents' answers to Hello. Pure.
#pragma once

#include <algorithm>
#include <vector>

#include "membership/coordinator/member_table.h"
#include "proto/message.h"
#include "proto/world.h"

namespace regroup::membership {

// Compares what the agents know with the journaled World. Not thread-safe.
class Recovery {
 public:
  // An agent has answered. `journaled`: the newest World of the journal; generation 0: none.
  void add(const proto::HelloReply& reply, const proto::World& journaled);
  // All agents so far know the journaled World, and none has revoked it: the job goes on with it.
  [[nodiscard]] bool agreed() const { return agreed_; }
  // The highest generation that one of them knows. A World with it may have been announced, so the
  // next one needs a higher one.
  [[nodiscard]] proto::Generation highest() const { return highest_; }

 private:
  bool agreed_ = true;
  proto::Generation highest_ = 0;
};

// The members of the newest World on `node` that are not in `slots`, which its agent reports. An
// agent reports all its slots, so their processes were reaped and their slots reassigned.
[[nodiscard]] std::vector<proto::MemberId> unreported_members(
    const MemberTable& members, proto::NodeId node, const std::vector<proto::SlotReport>& slots);

}  // namespace regroup::membership
