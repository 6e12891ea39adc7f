// Serves docs/design/catch_up.md.
#include "membership/coordinator/state_transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace regroup::membership {
namespace {

// Between a state transfer and the next.
constexpr base::Duration kPause = std::chrono::milliseconds(200);
constexpr proto::TransferId kOfIncarnation = 4096;
constexpr std::size_t kMostSources = 4;
constexpr std::uint32_t kMaxFailedTransfers = 3;  // then the member is copied to inside the regroup

// A job on one host has no host name.
std::string at_host(const std::string& host, const std::string& why) {
  return host.empty() ? why : fmt::format("host {}: {}", host, why);
}

std::string lost(const std::string& host) {
  return fmt::format("host {} was lost while it served the state", host);
}

// Why a source node cannot serve the state any more, or empty. `host` is passed, since a lost node
// is in no table. `writing`: the World is still the one whose members write the snapshot, so all of
// them have the state then.
std::string why_unable(const StateTransfers::Context& context, proto::NodeId node,
                       const std::string& host, bool writing) {
  if (!context.nodes.contains(node)) return lost(host);
  const bool gives = std::ranges::any_of(context.members.on_node(node), [&](proto::MemberId id) {
    const MemberInfo& r = *context.members.find(id);
    return r.lives_in_world() && (writing || r.has_state());
  });
  return gives ? "" : at_host(host, "no member that wrote the snapshot still has the state");
}

}  // namespace

StateTransfers::StateTransfers(proto::Incarnation incarnation)
    : last_(incarnation % kOfIncarnation * kOfIncarnation) {}

// Never 0. Each incarnation cycles through its own range of ids.
proto::TransferId StateTransfers::next_id() {
  const proto::TransferId first = last_ / kOfIncarnation * kOfIncarnation;
  last_ = first + std::max<proto::TransferId>((last_ + 1) % kOfIncarnation, 1);
  return last_;
}

StateTransfers::RegroupReason StateTransfers::poll(Context context) {
  if (context.steady && context.members.any_lacks_results()) {
    for (auto& [id, r] : context.members.edit_all()) {
      if (!r.lacks_results() || (transfer_ && transfer_->learners.contains(id))) continue;
      r.catch_up_with(CatchUpEvent::kUndone);
      return fmt::format(
          "member {} gets the state inside the regroup: no source has the results that it lacks",
          id);
    }
  }
  if (!transfer_) {
    begin(context);
    return {};
  }
  std::erase_if(transfer_->learners, [&](const auto& learner) {
    const MemberInfo& r = *context.members.find(learner.first);
    return r.proved || (r.state >= MemberState::kDraining && !r.lacks_results());
  });
  if (transfer_->learners.empty()) return end(context, "");
  for (const auto& [node, source] : transfer_->sources) {
    const bool writing = transfer_->generation == context.world.generation;
    if (const std::string why = why_unable(context, node, source.name, writing); !why.empty())
      return end(context, why);
  }
  for (const auto& [node, host] : transfer_->asked) {
    if (!context.nodes.contains(node)) return end(context, lost(host));
  }
  if (std::ranges::all_of(transfer_->learners,
                          [](const auto& learner) { return learner.second; })) {
    for (const auto& [id, caught_up] : transfer_->learners) {
      MemberInfo& r = *context.members.edit(id);
      const bool waited = is_learner(r.catch_up);
      r.catch_up_with(CatchUpEvent::kAdmitted);
      if (waited)
        context.outbox.remember(
            fmt::format("member {} has caught up with step {}", id, r.caught_up_to));
    }
  }
  return {};
}

// The node with the most members that have the state chooses the step of the snapshot.
void StateTransfers::begin(const Context& context) {
  if (!context.steady || context.now < next_ || context.members.any_finished() ||
      context.members.learning() == 0)
    return;
  const std::vector<proto::MemberId> learning =
      learners(context.members.roster(context.world, {}), context.policy);
  if (learning.empty()) return;
  std::map<proto::NodeId, std::pair<int, int>> members;  // those with the state, and all
  for (const proto::WorldMember& m : context.world.members) {
    const MemberInfo& r = *context.members.find(m.id);
    if (!r.lives_in_world()) return;  // this World commits no further step
    if (!context.nodes.contains(m.slot_id.node)) continue;
    auto& [with_state, all] = members[m.slot_id.node];
    with_state += r.has_state() ? 1 : 0;
    ++all;
  }
  const auto most = std::ranges::max_element(members, {}, [](const auto& m) { return m.second; });
  if (most == members.end()) return;
  transfer_ = Transfer();
  transfer_->id = next_id();
  transfer_->generation = context.world.generation;
  for (const proto::MemberId id : learning) transfer_->learners[id] = false;
  context.outbox.remember(fmt::format("state transfer {} for member{} {}", transfer_->id,
                                      learning.size() == 1 ? "" : "s", fmt::join(learning, ", ")));
  ask(context, most->first);
}

void StateTransfers::ask(const Context& context, proto::NodeId node) {
  transfer_->asked[node] = context.nodes.all().at(node).name;
  context.outbox.send(node, proto::StartSource{transfer_->id, transfer_->step});
}

StateTransfers::RegroupReason StateTransfers::on_source_status(const Context& context,
                                                               proto::NodeId node,
                                                               const proto::SourceStatus& status) {
  if (!transfer_ || status.transfer != transfer_->id) return {};
  const bool first = transfer_->step == 0;
  const auto answered = transfer_->asked.extract(node);
  const bool asked = !answered.empty();
  if (!asked && !transfer_->sources.contains(node)) return {};
  const bool reached = !status.endpoints.empty() || context.nodes.all().size() == 1;
  const bool same = first ? status.step > 0 : status.step == transfer_->step;
  if (!status.why.empty() || !reached || (asked && !same)) {
    const std::string why = !status.why.empty() ? status.why
                            : !reached ? "its agent has no address that other hosts can reach"
                                       : "it serves another step";
    if (first || !asked)  // else the transfer continues without this node
      return end(context, at_host(context.nodes.all().at(node).name, why));
  } else if (asked) {
    transfer_->sources[node] = {node, status.endpoints, answered.mapped()};
    transfer_->step = status.step;
  }
  if (first) ask_more_sources(context);
  if (transfer_->asked.empty() && !transfer_->begun) start_targets(context);
  return {};
}

void StateTransfers::ask_more_sources(const Context& context) {
  for (const proto::WorldMember& m : context.world.members) {
    const proto::NodeId node = m.slot_id.node;
    if (transfer_->sources.contains(node)) continue;
    if (transfer_->asked.contains(node) || !context.nodes.contains(node)) continue;
    if (transfer_->asked.size() + 1 < kMostSources) ask(context, node);
  }
}

void StateTransfers::start_targets(Context context) {
  transfer_->begun = true;
  std::map<proto::NodeId, proto::StartTarget> orders;
  for (const auto& [id, caught_up] : transfer_->learners)
    orders[context.members.edit(id)->slot_id.node].members.push_back(id);
  for (auto& [node, order] : orders) {
    order.transfer = transfer_->id;
    order.step = transfer_->step;
    for (const auto& [at, source] : transfer_->sources) order.sources.push_back(source);
    context.outbox.send(node, std::move(order));
  }
}

StateTransfers::RegroupReason StateTransfers::on_target_status(Context context,
                                                               const proto::TargetStatus& status) {
  if (!transfer_ || status.transfer != transfer_->id ||
      !transfer_->learners.contains(status.member))
    return {};
  MemberInfo& r = *context.members.edit(status.member);
  const bool in_world = r.lacks_results();
  if (status.why.empty()) {
    transfer_->learners[r.id] = true;
    r.catch_up_with(CatchUpEvent::kDone);
    r.caught_up_to = std::max(r.caught_up_to, status.step);
    r.proved |= in_world;  // a learner in the World had caught up before
    return {};
  }
  transfer_->learners.erase(r.id);
  r.catch_up_with(CatchUpEvent::kUndone);
  if (++r.failed_transfers >= kMaxFailedTransfers) r.catch_up_with(CatchUpEvent::kGivenUp);
  context.outbox.remember(
      fmt::format("state transfer {}: member {} failed: {}", status.transfer, r.id, status.why));
  if (!in_world) return {};
  return fmt::format("member {} is copied to inside the regroup: {}", r.id, status.why);
}

// Those that have not come in have another state transfer, or a copy.
StateTransfers::RegroupReason StateTransfers::end(Context context, const std::string& why) {
  const Transfer transfer = std::move(*transfer_);
  transfer_.reset();
  next_ = context.now + kPause;
  std::set<proto::NodeId> nodes;
  for (const auto& [node, host] : transfer.asked) nodes.insert(node);
  for (const auto& [node, source] : transfer.sources) nodes.insert(node);
  bool stuck = false;
  for (const auto& [id, caught_up] : transfer.learners) {
    MemberInfo& r = *context.members.edit(id);
    nodes.insert(r.slot_id.node);
    r.catch_up_with(CatchUpEvent::kUndone);
    if (!r.in_world()) {
      const bool again = ++r.failed_transfers < kMaxFailedTransfers;
      r.catch_up_with(again ? CatchUpEvent::kOrdered : CatchUpEvent::kGivenUp);
    }
    stuck |= r.lacks_results();
  }
  for (const proto::NodeId node : nodes) {
    if (context.nodes.contains(node)) context.outbox.send(node, proto::EndTransfer{transfer.id});
  }
  if (!why.empty())
    context.outbox.remember(fmt::format("state transfer {} ended: {}", transfer.id, why));
  if (!stuck) return {};
  return fmt::format("a learner is copied to inside the regroup: {}", why);
}

}  // namespace regroup::membership
