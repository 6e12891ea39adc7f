// Which nodes a round still waits for.
#include "membership/coordinator/report_round.h"

#include <algorithm>
#include <utility>

namespace regroup::membership {

void ReportRound::begin(base::Duration at) {
  reports_.clear();
  asked_.clear();
  asked_all_ = at;
}

void ReportRound::add(proto::NodeId node, std::vector<proto::SlotReport> slots) {
  reports_[node] = std::move(slots);
}

void ReportRound::lose(proto::NodeId node) {
  reports_.erase(node);
  asked_.erase(node);
}

bool ReportRound::any_joined() const {
  const auto joined = [](const proto::SlotReport& slot) { return slot.slot != proto::kNoSlot; };
  return std::ranges::any_of(
      reports_, [&](const auto& report) { return std::ranges::any_of(report.second, joined); });
}

std::vector<proto::NodeId> ReportRound::missing(const NodeTable& nodes) const {
  std::vector<proto::NodeId> out;
  for (const auto& [id, node] : nodes.all()) {
    if (!reports_.contains(id)) out.push_back(id);
  }
  return out;
}

std::vector<proto::NodeId> ReportRound::overdue(const NodeTable& nodes, base::Duration at) const {
  if (at - asked_all_ < kAnswer || complete(nodes)) return {};
  std::vector<proto::NodeId> out = missing(nodes);
  std::erase_if(out, [&](proto::NodeId id) {
    const auto asked = asked_.find(id);
    return asked != asked_.end() && at - asked->second < kAnswer;
  });
  return out;
}

}  // namespace regroup::membership
