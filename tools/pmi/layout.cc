// The constructor builds tables by rank, once for each space.
#include "tools/pmi/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <numeric>

namespace regroup::pmi {

Layout::Layout(const OpenSpace& space, const std::string& own) {
  const std::uint32_t size = std::accumulate(space.app_sizes.begin(), space.app_sizes.end(), 0U);
  std::map<std::uint32_t, std::uint32_t> known;  // number in the job -> index in hosts_
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    const std::uint32_t number = rank < space.host_of.size() ? space.host_of[rank] : space.host;
    const auto [entry, fresh] = known.emplace(number, hosts_.size());
    if (fresh)
      hosts_.push_back({number < space.hosts.size() ? space.hosts[number] : own, number, {}});
    Host& host = hosts_[entry->second];
    local_ranks_.push_back(static_cast<std::uint32_t>(host.ranks.size()));
    host.ranks.push_back(rank);
    host_of_.push_back(entry->second);
    if (number == space.host) here_.push_back(rank);
  }
}

// A run is consecutive ranks on one host; runs of the same length on consecutive hosts form a
// block.
std::string Layout::mapping() const {
  struct Block {
    std::uint32_t first = 0, hosts = 0, ranks = 0;
  };
  std::vector<Block> blocks;
  for (std::uint32_t rank = 0; rank < size();) {
    std::uint32_t end = rank + 1;
    while (end < size() && host_of_[end] == host_of_[rank]) ++end;
    const std::uint32_t host = host_of_[rank];
    if (!blocks.empty() && blocks.back().ranks == end - rank &&
        blocks.back().first + blocks.back().hosts == host) {
      ++blocks.back().hosts;
    } else {
      blocks.push_back({host, 1, end - rank});
    }
    rank = end;
  }
  std::string out = "(vector";
  for (const Block& block : blocks)
    out += fmt::format(",({},{},{})", block.first, block.hosts, block.ranks);
  return out + ")";
}

}  // namespace regroup::pmi
