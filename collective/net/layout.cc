// Segments are what remains when slices are cut at the edges of the slices of all hosts.
#include "collective/net/layout.h"

#include <algorithm>
#include <map>

namespace regroup::collective::net {

namespace {

constexpr std::size_t kGrain = 64;  // elements: whole cache lines for every type

}  // namespace

Layout Layout::of(const std::vector<proto::NodeId>& nodes, int rank) {
  Layout out;
  out.rank = rank;
  out.size = static_cast<int>(nodes.size());
  std::map<proto::NodeId, std::size_t> index;
  for (std::size_t r = 0; r < nodes.size(); ++r) {
    const auto [at, is_new] = index.emplace(nodes[r], out.hosts.size());
    if (is_new) out.hosts.emplace_back();
    auto& host = out.hosts[at->second];
    if (static_cast<int>(r) == rank) {
      out.host = at->second;
      out.local_rank = host.size();
    }
    host.push_back(static_cast<int>(r));
  }
  return out;
}

std::size_t Layout::max_local_size() const {
  std::size_t limit = 0;
  for (const auto& ranks : hosts) limit = std::max(limit, ranks.size());
  return limit;
}

std::size_t Layout::host_of(int which) const {
  const auto has = [&](const std::vector<int>& ranks) {
    return std::ranges::binary_search(ranks, which);
  };
  return static_cast<std::size_t>(std::ranges::find_if(hosts, has) - hosts.begin());
}

bool Layout::is_here(int which) const { return std::ranges::binary_search(here(), which); }

int Layout::local_rank_of(int which) const {
  return static_cast<int>(std::ranges::find(here(), which) - here().begin());
}

std::size_t Layout::proxy_for(std::size_t of_host, int which) const {
  const auto& ranks = hosts[of_host];
  const auto before = std::ranges::lower_bound(ranks, which) - ranks.begin();
  return static_cast<std::size_t>(which - static_cast<int>(before)) % ranks.size();
}

Layout::ProxiedRanks Layout::ranks_proxied_by(std::size_t of_local_rank) const {
  ProxiedRanks out;
  for (int r = 0; r < size; ++r) {
    if (!is_here(r) && proxy_for(host, r) == of_local_rank) out.mine.push_back(r);
  }
  out.maximum = (static_cast<std::size_t>(size) - local_size() + local_size() - 1) / local_size();
  return out;
}

std::size_t slice_width(std::size_t elements, std::size_t local_size) {
  const std::size_t even = (elements + local_size - 1) / local_size;
  return (even + kGrain - 1) / kGrain * kGrain;
}

Range slice_of_local_rank(std::size_t elements, std::size_t local_size, std::size_t local_rank) {
  const std::size_t width = slice_width(elements, local_size);
  return {std::min(elements, local_rank * width), std::min(elements, (local_rank + 1) * width)};
}

std::vector<Segment> segments_of(const Layout& layout, std::size_t elements) {
  std::vector<std::size_t> cuts{elements};
  for (const auto& ranks : layout.hosts) {
    for (std::size_t local_rank = 0; local_rank < ranks.size(); ++local_rank) {
      cuts.push_back(slice_of_local_rank(elements, ranks.size(), local_rank).begin);
    }
  }
  std::ranges::sort(cuts);
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  const Range mine = slice_of_local_rank(elements, layout.here().size(), layout.local_rank);
  std::vector<Segment> out;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    if (cuts[i] < mine.begin || cuts[i] >= mine.end) continue;
    Segment segment{{cuts[i], cuts[i + 1]}, static_cast<std::uint32_t>(i), {}};
    for (const auto& ranks : layout.hosts) {
      segment.owners.push_back(ranks[cuts[i] / slice_width(elements, ranks.size())]);
    }
    out.push_back(std::move(segment));
  }
  return out;
}

std::pair<Range, Range> halves_of(Range whole) {
  const std::size_t middle = std::min(whole.end, whole.begin + slice_width(whole.size(), 2));
  return {{whole.begin, middle}, {middle, whole.end}};
}

Range share_of_host(Range whole, std::size_t host, std::size_t base) {
  for (std::size_t distance = 1; distance < base; distance *= 2) {
    const auto [low, high] = halves_of(whole);
    whole = (host & distance) == 0 ? low : high;
  }
  return whole;
}

}  // namespace regroup::collective::net
