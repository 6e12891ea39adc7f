// Ranks are numbered program by program; local ranks are numbered on each host in rank order.
#include "launcher/job/rank_layout.h"

#include <map>
#include <numeric>

namespace regroup::job {

std::vector<process::Place> layout_ranks(const std::vector<std::uint32_t>& counts,
                                         proto::MemberId first, std::uint32_t first_app,
                                         std::uint32_t space,
                                         const std::vector<std::uint32_t>& host_of) {
  const std::uint32_t size = std::accumulate(counts.begin(), counts.end(), 0U);
  std::map<std::uint32_t, std::uint32_t> on_host;
  std::vector<process::Place> layout;
  for (std::uint32_t app = 0; app < counts.size(); ++app) {
    for (std::uint32_t index = 0; index < counts[app]; ++index) {
      const auto rank = static_cast<std::uint32_t>(layout.size());
      process::Place place{first + rank, rank, size, first_app + app, index, space};
      place.host = host_of.empty() ? 0 : host_of[rank];
      place.local_rank = on_host[place.host]++;
      layout.push_back(place);
    }
  }
  for (process::Place& place : layout) place.local_size = on_host[place.host];
  return layout;
}

}  // namespace regroup::job
