// A process hides its rank while it starts another program, and for good when it sets its title. So
// a rank that was seen counts as ended when its process has ended in two checks in a row; one that
// was never seen only once it must have been started.
#include "elastic/rank_watch.h"

#include <fmt/format.h>

#include <utility>

namespace regroup::elastic {
namespace {

// Time of a launcher on a busy host to start all ranks.
constexpr base::Duration kStartOfRanks = std::chrono::seconds(5);

}  // namespace

std::optional<std::string> RankWatch::check(base::TimePoint now, const RankScan& seen,
                                            const std::set<std::uint32_t>& joined) {
  if (joined.empty() || seen.hidden) return std::nullopt;
  for (const auto& [rank, pid] : seen.ended_well) {
    if (!joined.contains(rank))
      return fmt::format(
          "rank {} (process {}) ended with status 0 without calling join(), while {} of {} ranks "
          "wait in "
          "join()",
          rank, pid, joined.size(), size_);
  }
  using Started = RankScan::Started;
  for (const auto& [rank, pid] : seen.living) known_[rank] = pid;
  const bool all_started = seen.started == Started::kAll ||
                           (seen.started == Started::kSoon && now >= since_ + kStartOfRanks);
  std::set<std::uint32_t> missed;
  std::string ended;
  int count = 0;
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    if (joined.contains(rank) || seen.living.contains(rank)) continue;
    const auto known = known_.find(rank);
    if (known != known_.end() && seen.processes.contains(known->second)) continue;
    missed.insert(rank);
    if (!missed_.contains(rank) || (known == known_.end() && !all_started)) continue;
    ended += fmt::format("{}{}", count++ == 0 ? "" : ", ", rank);
    if (known != known_.end()) ended += fmt::format(" (process {})", known->second);
  }
  missed_ = std::move(missed);
  if (count == 0) return std::nullopt;
  return fmt::format("rank{} {} {} ended, and {} of {} ranks wait{} in join() for {}",
                     count == 1 ? "" : "s", ended, count == 1 ? "has" : "have", joined.size(),
                     size_, joined.size() == 1 ? "s" : "", count == 1 ? "it" : "them");
}

}  // namespace regroup::elastic
