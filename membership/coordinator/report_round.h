// The reports that a coordinator waits for before it continues or forms a World.
#pragma once

#include <map>
#include <vector>

#include "base/clock.h"
#include "membership/coordinator/node_table.h"
#include "proto/slot_report.h"
#include "proto/world.h"

namespace regroup::membership {

// A round begins when the agents of all nodes are asked (by Hello or Revoke), and is complete once
// every node of the job has reported. All are waited for, those without a member of the World
// included: a step may have been committed by a member that is dead, and then only the report of
// its host says so. Times are on a clock that does not run while this process is stopped. Pure.
class ReportRound {
 public:
  using Reports = std::map<proto::NodeId, std::vector<proto::SlotReport>>;

  // All nodes were asked at `at`. The reports of the round before are void.
  void begin(base::Duration at);
  // A node that has come later was asked at `at`.
  void ask(proto::NodeId node, base::Duration at) { asked_[node] = at; }
  // `node` has reported; a further report of a round replaces the first one.
  void add(proto::NodeId node, std::vector<proto::SlotReport> slots);
  // The node is lost: it is not waited for, and its report does not count. If only its members knew
  // that a step was committed, the survivors compute it again, with the same bits.
  void lose(proto::NodeId node);
  // The reports have been used, or are not needed any more.
  void clear() { reports_.clear(); }

  [[nodiscard]] const Reports& reports() const { return reports_; }
  [[nodiscard]] bool complete(const NodeTable& nodes) const {
    return reports_.size() >= nodes.size();
  }
  // A reported member has a slot, which it got when it joined.
  [[nodiscard]] bool any_joined() const;
  // The nodes of `nodes` that have not reported, in ascending order.
  [[nodiscard]] std::vector<proto::NodeId> missing(const NodeTable& nodes) const;
  // Those of them that were asked kAnswer ago or longer: their heartbeats come, but not what the
  // next World waits for.
  [[nodiscard]] std::vector<proto::NodeId> overdue(const NodeTable& nodes, base::Duration at) const;

  // Longer than the detection of a lost agent and of a lost relay, and the reconnection by another
  // way, together.
  static constexpr base::Duration kAnswer = std::chrono::seconds(20);

 private:
  base::Duration asked_all_{};
  std::map<proto::NodeId, base::Duration> asked_;  // after that
  Reports reports_;
};

}  // namespace regroup::membership
