// Checks the ranks of CommunicatorOptions.
#include "collective/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace regroup::collective {

base::Result<std::vector<int>> ranks_of(const proto::World& world,
                                        const CommunicatorOptions& options) {
  std::vector<int> ranks = options.ranks;
  for (std::uint32_t i = 0; options.ranks.empty() && i < world.size(); ++i)
    ranks.push_back(static_cast<int>(i));
  const bool ascending = std::ranges::adjacent_find(ranks, std::greater_equal{}) == ranks.end();
  if (ranks.empty() || !ascending || ranks.front() < 0 ||
      ranks.back() >= static_cast<int>(world.size())) {
    return base::invalid_argument(fmt::format(
        "communicator: the ranks must be ascending and of a World of {} members", world.size()));
  }
  return ranks;
}

}  // namespace regroup::collective
