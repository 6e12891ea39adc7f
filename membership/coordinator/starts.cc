// Filling a job up.
#include "membership/coordinator/starts.h"

#include <algorithm>

namespace regroup::membership {

std::vector<MemberStart> missing_members(base::TimePoint now, const MemberTable& members,
                                         const JobSize& size, std::uint32_t spares,
                                         const RestartBudget& budget) {
  std::vector<MemberStart> out;
  const std::uint32_t wanted = size.desired() + spares;
  std::uint32_t staying = members.staying();
  std::uint32_t processes = members.processes();
  if (staying >= wanted || processes >= size.capacity()) return out;
  std::vector<bool> used = members.used_slots();
  used.resize(std::max<std::size_t>(used.size(), wanted));
  for (; staying < wanted && processes < size.capacity(); ++staying, ++processes) {
    const auto slot = budget.next(now, wanted, used);
    if (!slot) break;
    used[*slot] = true;
    out.push_back({staying, std::max(size.desired(), staying + 1), *slot});
  }
  return out;
}

}  // namespace regroup::membership
