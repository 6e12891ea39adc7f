// The data plane of a World, and members that no plane of the job could serve.
// docs/design/planes.md.
#include <fmt/format.h>

#include <algorithm>

#include "membership/coordinator/coordinator.h"
#include "membership/coordinator/stand_in.h"

namespace regroup::membership {

PlaneMember Coordinator::plane_member(const MemberInfo& member, proto::NodeId node) const {
  const NodeTable::Node* host = nodes_.size() > 1 ? nodes_.find(node) : nullptr;
  return {member.id, node, host == nullptr ? "" : host->name,
          member.planes ? &*member.planes : nullptr};
}

PlaneVerdict Coordinator::plane_of(const std::vector<proto::MemberId>& next) const {
  std::vector<PlaneMember> members;
  members.reserve(next.size());
  for (const proto::MemberId id : next) {
    const MemberInfo& r = *members_.find(id);
    members.push_back(plane_member(r, r.slot_id.node));
  }
  return choose_plane(members, policy_.plane);
}

// Of a member that becomes ready on `node`. Before World 1 the planes of all are looked at
// together, so that the job ends with the sentence about all of them; later a newcomer must not end
// a job that works without it.
std::string Coordinator::plane_refusal(const MemberInfo& member, proto::NodeId node) const {
  const PlaneMember its = plane_member(member, node);
  const MemberInfo* first = first_with_planes_ ? members_.find(*first_with_planes_) : nullptr;
  if (first != nullptr) {
    const std::string why = other_memory(its, plane_member(*first, first->slot_id.node));
    if (!why.empty()) return why;
  }
  if (world_.generation == 0) return "";
  // A member like one that is in the World already changes nothing.
  const auto is_like_it = [&](proto::MemberId id) {
    const MemberInfo& other = *members_.find(id);
    return other.lives_in_world() && other.planes == member.planes;
  };
  if (std::ranges::any_of(members_.on_node(node), is_like_it)) return "";
  std::vector<PlaneMember> all;
  for (const auto& [id, other] : members_.all()) {
    if (other.state == MemberState::kWarm || other.lives_in_world())
      all.push_back(plane_member(other, other.slot_id.node));
  }
  all.push_back(its);
  const PlaneVerdict verdict = choose_plane(all, policy_.plane);
  return verdict.plane ? "" : verdict.sentence;
}

bool Coordinator::accept_planes(MemberInfo* r, proto::NodeId node,
                                const std::optional<proto::PlaneFacts>& planes) {
  r->planes = planes;
  const std::string why = plane_refusal(*r, node);
  if (!why.empty()) {
    const std::string sentence = fmt::format("member {} is refused: {}", r->id, why);
    outbox_.note(sentence);
    // Without this rank there is no World of fixed size, and its process may be another launcher's.
    if (policy_.fixed) return end(1, sentence), false;
    r->failure = {r->id, proto::kRefusedKind, "", sentence};
    refuse_member(r, sentence);
    return false;
  }
  if (planes && !first_with_planes_ && sets_memory(r->id)) first_with_planes_ = r->id;
  return true;
}

// A newcomer is measured by the members of the World, not they by it: after a restart of the
// coordinator its host may answer first.
bool Coordinator::sets_memory(proto::MemberId id) const {
  return world_.generation == 0 || world_.rank_of(id) >= 0;
}

// Where the members of the World had not said their planes when the newcomers became ready.
bool Coordinator::refuse_newcomers(const std::vector<proto::MemberId>& next,
                                   const std::string& why) {
  bool refused = false;
  for (const proto::MemberId id : next) {
    if (sets_memory(id)) continue;
    MemberInfo* r = members_.edit(id);
    const std::string sentence = fmt::format("member {} is refused: {}", id, why);
    outbox_.note(sentence);
    r->failure = {id, proto::kRefusedKind, "", sentence};
    refuse_member(r, sentence);
    refused = true;
  }
  return refused;
}

// Members change by themselves, with the same bits; the next World tries the plane again. The first
// host that says so knows why: its loss is that of all.
void Coordinator::on_carrier_lost(proto::NodeId node, const proto::CarrierLost& lost) {
  const auto now = world_.plane ? stand_in(*world_.plane) : std::nullopt;
  if (stage_ == Stage::kRegrouping || !now || lost.generation != world_.generation ||
      !carrier_lost_.empty() || !has_member_on(world_, node))
    return;
  carrier_lost_ = fmt::format("{} in place of {}: host {}: {}", name_of(*now),
                              name_of(*world_.plane), nodes_.find(node)->name, lost.why);
  outbox_.note(fmt::format("plane: {}", carrier_lost_));
}

void Coordinator::recover_planes(proto::NodeId node, const std::vector<proto::MemberPlanes>& all) {
  for (const proto::MemberPlanes& one : all) {
    MemberInfo* r = members_.edit(one.member);
    if (r == nullptr || r->slot_id.node != node) continue;
    r->planes = one.planes;
    if (!first_with_planes_ && sets_memory(r->id)) first_with_planes_ = r->id;
  }
}

}  // namespace regroup::membership
