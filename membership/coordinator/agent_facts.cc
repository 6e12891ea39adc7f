// Every message of an agent passes these checks before it changes anything.
#include "membership/coordinator/agent_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

namespace regroup::membership {
namespace {

// A generation is on disk before it is announced, so no agent can know one above the journal's
// newest. A few are tolerated for a coordinator whose journal has lost its end. A lying agent can
// so waste only a few of the two million numbers.
constexpr proto::Generation kGenerationTolerance = 16;

}  // namespace

bool is_agent_message(const proto::Body& body) {
  return std::holds_alternative<proto::MemberReady>(body) ||
         std::holds_alternative<proto::MemberDrained>(body) ||
         std::holds_alternative<proto::MemberLost>(body) ||
         std::holds_alternative<proto::Report>(body) ||
         std::holds_alternative<proto::HelloReply>(body) ||
         std::holds_alternative<proto::PeerAddresses>(body) ||
         std::holds_alternative<proto::PeerSuspect>(body) ||
         std::holds_alternative<proto::CarrierLost>(body) ||
         std::holds_alternative<proto::SourceStatus>(body) ||
         std::holds_alternative<proto::TargetStatus>(body) ||
         std::holds_alternative<proto::Diverged>(body) ||
         std::holds_alternative<proto::Failure>(body);
}

bool may_report(const CoordinatorView& known, proto::NodeId node, proto::MemberId member) {
  const MemberInfo* r = known.members.find(member);
  if (r != nullptr) return r->slot_id.node == node;
  return known.fixed_nodes || member < known.members.reserved_below();
}

std::vector<proto::SlotReport> reports_of_host(const CoordinatorView& known, proto::NodeId node,
                                               std::vector<proto::SlotReport> slots) {
  std::erase_if(
      slots, [&](const proto::SlotReport& slot) { return !may_report(known, node, slot.member); });
  return slots;
}

proto::PeerAddresses addresses_of_host(const CoordinatorView& known, proto::NodeId node,
                                       proto::PeerAddresses addresses) {
  std::erase_if(addresses.members, [&](const proto::MemberAddress& entry) {
    const MemberInfo* r = known.members.find(entry.member);
    return r == nullptr || r->rank < 0 || r->slot_id.node != node;
  });
  return addresses;
}

bool has_member_on(const proto::World& world, proto::NodeId node) {
  return std::ranges::any_of(world.members,
                             [&](const proto::WorldMember& m) { return m.slot_id.node == node; });
}

std::string loss_message(const proto::MemberLost& lost, const std::string& cause) {
  const std::string name = fmt::format("member {}", lost.member);
  const bool named = lost.why.starts_with(name + ": ") || lost.why.starts_with(name + " (");
  return named ? lost.why : fmt::format("{}: {}", name, cause);
}

std::string inconsistency_in(const CoordinatorView& known, const proto::Body& said) {
  if (const auto* hello = std::get_if<proto::HelloReply>(&said)) {
    const proto::Generation heard = std::max(hello->world, hello->revoked_up_to);
    if (heard <= known.world.generation + kGenerationTolerance) return "";
    return fmt::format("says that it has heard of generation {}, the journal knows {}", heard,
                       known.world.generation);
  }
  if (const auto* report = std::get_if<proto::Report>(&said)) {
    if (report->generation <= known.highest) return "";
    return fmt::format("says that generation {} is over, the newest is {}", report->generation,
                       known.highest);
  }
  return "";
}

}  // namespace regroup::membership
