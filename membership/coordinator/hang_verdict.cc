// Which hung members are killed, and the sentence about them.
#include "membership/coordinator/hang_verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

namespace regroup::membership {
namespace {

constexpr std::size_t kMostNamed = 8;  // in a sentence

bool state_is_elsewhere(const MemberTable& members, const proto::World& world,
                        const std::vector<proto::MemberId>& but) {
  return std::any_of(world.members.begin(), world.members.end(), [&](const proto::WorldMember& m) {
    const MemberInfo* r = members.find(m.id);
    return r != nullptr && r->lives_in_world() && r->has_state() &&
           std::find(but.begin(), but.end(), m.id) == but.end();
  });
}

std::string names_of(const std::vector<proto::MemberId>& hung, const MemberTable& members,
                     const NodeTable& nodes) {
  std::vector<std::string> names;
  for (const proto::MemberId id : hung) {
    if (names.size() == kMostNamed) break;
    const NodeTable::Node* node = nodes.find(members.find(id)->slot_id.node);
    const bool named = node != nullptr && !node->name.empty();
    names.push_back(named ? fmt::format("{} (host {})", id, node->name) : std::to_string(id));
  }
  const std::size_t more = hung.size() - names.size();
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

std::string why_not_killed(const ProgressWatch::Stall& found, bool others_have,
                           const Policy& policy) {
  if (!found.minority) return "they are more than half of the members";
  if (!others_have) return "no other member has the state";
  return fmt::format(
      "it has not taken two steps yet, and may be loading data or compiling; it is killed after "
      "{:g} s "
      "without progress",
      5 * std::chrono::duration<double>(policy.hang_timeout).count());
}

}  // namespace

HangVerdict judge_hang(const ProgressWatch::Stall& stall, bool long_quiet,
                       const proto::World& world, const MemberTable& members,
                       const NodeTable& nodes, const Policy& policy) {
  const bool may_kill = policy.on_hang != proto::OnHang::kReport;
  if (stall.members.empty())
    return {stall.why +
                (may_kill ? "; which of them hangs is unknown, so none is killed (--on-hang)" : ""),
            {}};
  const bool have = state_is_elsewhere(members, world, stall.members);
  const bool kills = may_kill && have && (stall.sure || (stall.minority && long_quiet));
  return {
      fmt::format("member{} {} {}{}", stall.members.size() == 1 ? "" : "s",
                  names_of(stall.members, members, nodes), stall.why,
                  kills      ? "; killed (--on-hang)"
                  : may_kill ? "; not killed (--on-hang): " + why_not_killed(stall, have, policy)
                             : ""),
      kills ? stall.members : std::vector<proto::MemberId>{}};
}

}  // namespace regroup::membership
