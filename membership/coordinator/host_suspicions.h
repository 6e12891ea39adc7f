// Hosts that two independent observers do not hear any more.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "base/clock.h"
#include "membership/coordinator/member_table.h"
#include "proto/world.h"

namespace regroup::membership {

// The first observer is the controller, which misses the heartbeats of a host's agent; the second
// is a member on another host, whose data connection to a member there fails. Each alone may be
// wrong: an agent may be slow, and a single link may be cut. Both together are a lost host. Pure.
class HostSuspicions {
 public:
  // The agent's heartbeats stopped a second ago, or come again.
  void set_silent(proto::NodeId node, bool silent);
  [[nodiscard]] bool is_silent(proto::NodeId node) const { return silent_.contains(node); }
  [[nodiscard]] bool any_silent() const { return !silent_.empty(); }
  // A member of another host cannot reach `member`. True if no such report counts at present.
  bool suspect(base::TimePoint now, proto::MemberId member);
  // The nodes to give up: silent, and with a living member of the World that is suspected.
  [[nodiscard]] std::set<proto::NodeId> lost(base::TimePoint now, const MemberTable& members) const;
  void forget(proto::NodeId node) { silent_.erase(node); }

  // How long a member's report that it cannot reach another counts.
  static constexpr base::Duration kCounts = std::chrono::seconds(5);

 private:
  std::set<proto::NodeId> silent_;
  std::map<proto::MemberId, base::TimePoint> suspected_;  // when it was last reported
};

}  // namespace regroup::membership
