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
// wrong: an agent may be slow, and a single link may be cut. Both together are a lost host. A host
// whose own link is bad reports all others: what it says does not count while it is silent itself,
// nor while as many hosts report it as report the other. Pure.
class HostSuspicions {
 public:
  // The agent's heartbeats stopped a second ago, or come again.
  void set_silent(proto::NodeId node, bool silent);
  [[nodiscard]] bool is_silent(proto::NodeId node) const { return silent_.contains(node); }
  [[nodiscard]] bool any_silent() const { return !silent_.empty(); }
  // A member of host `by` cannot reach `member`, which is on another host. True if no host has
  // reported that in the last kCounts.
  bool suspect(base::TimePoint now, proto::MemberId member, proto::NodeId by);
  // The nodes to give up: silent, and with a living member of the World that another host reports
  // whose reports count.
  [[nodiscard]] std::set<proto::NodeId> lost(base::TimePoint now, const MemberTable& members) const;
  void forget(proto::NodeId node);

  // How long a member's report that it cannot reach another counts.
  static constexpr base::Duration kCounts = std::chrono::seconds(5);

 private:
  // The hosts that are not silent and report a living member of each host.
  [[nodiscard]] std::map<proto::NodeId, std::set<proto::NodeId>> reports(
      base::TimePoint now, const MemberTable& members) const;

  std::set<proto::NodeId> silent_;
  // When each host last reported the member.
  std::map<proto::MemberId, std::map<proto::NodeId, base::TimePoint>> suspected_;
};

}  // namespace regroup::membership
