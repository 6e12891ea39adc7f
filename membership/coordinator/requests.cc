// The checks of requests, each with its sentence.
#include "membership/coordinator/requests.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/printable.h"

namespace regroup::membership {
namespace {

proto::Reply refused(std::string why) { return {false, std::move(why)}; }

// The member with this id, if it lives.
const MemberInfo* living(const MemberTable& members, proto::MemberId id) {
  const MemberInfo* r = members.find(id);
  return r != nullptr && r->state < MemberState::kLost ? r : nullptr;
}

}  // namespace

std::optional<proto::Reply> check_resize(const RequestTerms& terms, std::uint32_t members) {
  const Policy& policy = terms.policy;
  if (members < policy.min || members > policy.max) {
    return refused(fmt::format("resize {}: this job can have {} to {} (-np {}:{})", members,
                               policy.min, base::counted(policy.max, "member"), policy.min,
                               policy.max));
  }
  const std::uint32_t capacity = terms.size.capacity() + terms.lost;
  if (members > capacity && !policy.grows) {
    return refused(
        fmt::format("resize {}: the allocation has {}", members, base::counted(capacity, "slot")));
  }
  if (terms.members.any_finished())
    return refused(fmt::format("resize {}: the job is finishing", members));
  // Relaunches depend on the size of the first launch, which must not change before a member has
  // joined.
  if (!terms.joined && !terms.has_world)
    return refused(fmt::format("resize {}: no member has joined yet", members));
  return std::nullopt;
}

proto::Reply resized(std::uint32_t members, std::uint32_t in_world) {
  return {true, fmt::format("target {}, {} in the World now", members, in_world)};
}

std::optional<proto::Reply> check_notice(const RequestTerms& terms, proto::MemberId id) {
  const MemberInfo* r = living(terms.members, id);
  if (r == nullptr) {
    return refused(
        fmt::format("notice {}: no such member; there are {}", id, terms.members.ids_of_living()));
  }
  if (!terms.joined) return refused(fmt::format("notice {}: no member has joined yet", id));
  if (r->leave_wanted || r->state > MemberState::kActive)
    return proto::Reply{true, fmt::format("member {} is leaving already", id)};
  const Policy& policy = terms.policy;
  if (!policy.replace && r->state == MemberState::kActive &&
      terms.members.staying() <= policy.min) {
    return refused(fmt::format("notice {}: the job needs at least {} and replaces none", id,
                               base::counted(policy.min, "member")));
  }
  return std::nullopt;
}

proto::Reply noticed(const MemberInfo& member) {
  const bool waits = member.state == MemberState::kActive;
  return {true, fmt::format("member {} leaves {}", member.id,
                            waits ? "as soon as it can be spared" : "at the next step boundary")};
}

std::optional<proto::Reply> check_kill(const RequestTerms& terms, proto::MemberId id) {
  if (living(terms.members, id) != nullptr) return std::nullopt;
  return refused(fmt::format("kill-member {}: no such member; there are {}", id,
                             terms.members.ids_of_living()));
}

proto::Reply killed(proto::MemberId id) {
  return {true, fmt::format("member {} is being killed", id)};
}

}  // namespace regroup::membership
