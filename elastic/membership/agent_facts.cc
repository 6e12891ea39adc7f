// Every message of an agent passes these checks before it changes anything.
#include "elastic/membership/agent_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

namespace regroup::membership {
namespace {

// A generation is on disk before it is announced, so no agent can know one above the journal's newest. A few
// are tolerated for a coordinator whose journal has lost its end. A lying agent can so waste only a few of
// the two million numbers.
constexpr core::Generation kGenerationTolerance = 16;

}  // namespace

bool is_agent_message(const core::Body& body) {
  return std::holds_alternative<core::MemberReady>(body) ||
         std::holds_alternative<core::MemberDrained>(body) ||
         std::holds_alternative<core::MemberLost>(body) || std::holds_alternative<core::Report>(body) ||
         std::holds_alternative<core::HelloReply>(body) || std::holds_alternative<core::Contacts>(body) ||
         std::holds_alternative<core::PeerSuspect>(body) ||
         std::holds_alternative<core::SourceStatus>(body) ||
         std::holds_alternative<core::TargetStatus>(body) || std::holds_alternative<core::Diverged>(body) ||
         std::holds_alternative<core::Failure>(body);
}

bool may_report(const Known& known, core::NodeId node, core::MemberId member) {
  const MemberInfo* r = known.members.find(member);
  if (r != nullptr) return r->seat.node == node;
  return known.one_agent || member < known.members.reserved_below();
}

std::vector<core::SlotReport> lines_of_host(const Known& known, core::NodeId node,
                                            std::vector<core::SlotReport> lines) {
  std::erase_if(lines, [&](const core::SlotReport& line) { return !may_report(known, node, line.member); });
  return lines;
}

core::Contacts contacts_of_host(const Known& known, core::NodeId node, core::Contacts contacts) {
  std::erase_if(contacts.members, [&](const core::Contact& contact) {
    const MemberInfo* r = known.members.find(contact.member);
    return r == nullptr || r->rank < 0 || r->seat.node != node;
  });
  return contacts;
}

bool has_member_on(const core::World& world, core::NodeId node) {
  return std::ranges::any_of(world.members, [&](const core::WorldMember& m) { return m.seat.node == node; });
}

std::string loss_message(const core::MemberLost& lost, const std::string& cause) {
  const std::string name = fmt::format("member {}", lost.member);
  const bool named = lost.why.starts_with(name + ": ") || lost.why.starts_with(name + " (");
  return named ? lost.why : fmt::format("{}: {}", name, cause);
}

std::string inconsistency_in(const Known& known, const core::Body& said) {
  if (const auto* hello = std::get_if<core::HelloReply>(&said)) {
    const core::Generation heard = std::max(hello->world, hello->revoked_up_to);
    if (heard <= known.world.generation + kGenerationTolerance) return "";
    return fmt::format("says that it has heard of generation {}, the journal knows {}", heard,
                       known.world.generation);
  }
  if (const auto* report = std::get_if<core::Report>(&said)) {
    if (report->generation <= known.highest) return "";
    return fmt::format("says that generation {} is over, the newest is {}", report->generation,
                       known.highest);
  }
  return "";
}

}  // namespace regroup::membership
