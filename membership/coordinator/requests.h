// Which requests of the control commands a job carries out, and the replies to them. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "membership/coordinator/job_size.h"
#include "membership/coordinator/member_table.h"
#include "membership/membership.h"
#include "proto/message.h"
#include "proto/world.h"

namespace regroup::membership {

// What requests are checked against.
struct RequestTerms {
  const Policy& policy;
  const JobSize& size;
  const MemberTable& members;
  bool joined = false;     // a member has joined, so no further launch follows
  bool has_world = false;  // World 1 was formed
  std::uint32_t lost = 0;  // slots, to refused GPUs: a resize forgets these
};

// Each check returns the reply to a request that changes nothing, because it is refused or its
// effect is there already. Nothing: the request is to be carried out, and is then answered by the
// function below the check.

// `regroup resize`: the job is to have `members`.
[[nodiscard]] std::optional<proto::Reply> check_resize(const RequestTerms& terms,
                                                       std::uint32_t members);
// `in_world`: members of the World when the request came.
[[nodiscard]] proto::Reply resized(std::uint32_t members, std::uint32_t in_world);

// `regroup notice`: the member is to leave.
[[nodiscard]] std::optional<proto::Reply> check_notice(const RequestTerms& terms,
                                                       proto::MemberId id);
// `member`: after it was asked to leave.
[[nodiscard]] proto::Reply noticed(const MemberInfo& member);

// `regroup kill-member`.
[[nodiscard]] std::optional<proto::Reply> check_kill(const RequestTerms& terms, proto::MemberId id);
[[nodiscard]] proto::Reply killed(proto::MemberId id);

}  // namespace regroup::membership
