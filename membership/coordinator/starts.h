// Which members are started now, to fill a job up. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "membership/coordinator/job_size.h"
#include "membership/coordinator/member_table.h"
#include "membership/coordinator/restart_budget.h"

namespace regroup::membership {

// A member that is to be started.
struct MemberStart {
  std::uint32_t rank = 0;          // RANK of its process, until a World gives it another
  std::uint32_t world_size = 1;    // WORLD_SIZE of its process
  std::uint32_t restart_slot = 0;  // of RestartBudget
};

// The members that are missing at `now` for the desired size and `spares` more, as far as the job
// has slots for their processes, and as far as `budget` lets one start in a restart slot that no
// staying member uses: in this order, lowest restart slot first.
[[nodiscard]] std::vector<MemberStart> missing_members(base::TimePoint now,
                                                       const MemberTable& members,
                                                       const JobSize& size, std::uint32_t spares,
                                                       const RestartBudget& budget);

}  // namespace regroup::membership
