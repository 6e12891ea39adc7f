// What to do about members that hang. docs/guide/elastic.md, --on-hang. Pure.
#pragma once

#include <string>
#include <vector>

#include "membership/coordinator/member_table.h"
#include "membership/coordinator/node_table.h"
#include "membership/coordinator/progress_watch.h"
#include "membership/membership.h"
#include "proto/world.h"

namespace regroup::membership {

struct HangVerdict {
  std::string sentence;               // for the user
  std::vector<proto::MemberId> kill;  // none: they are only reported
};

// Judges what ProgressWatch has found. A member is killed only on request (--on-hang), and only if
// another member of `world` has the state, since a job must not lose it to a wrong guess. Members
// that are a minority but may be loading data or compiling are killed once the silence has lasted
// as long as ProgressWatch::is_long_quiet() says (`long_quiet`).
[[nodiscard]] HangVerdict judge_hang(const ProgressWatch::Stall& stall, bool long_quiet,
                                     const proto::World& world, const MemberTable& members,
                                     const NodeTable& nodes, const Policy& policy);

}  // namespace regroup::membership
