// Which ranks share a host, and which rank is responsible for which elements. Pure functions, any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "proto/world.h"

namespace regroup::collective::net {

// Elements begin..end-1.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t size() const { return end - begin; }
};

// The ranks of a communicator by host. Hosts are ordered by their first rank.
struct Layout {
  std::vector<std::vector<int>> hosts;
  int rank = 0;                // this rank
  int size = 0;                // number of ranks
  std::size_t host = 0;        // index of this rank's host in `hosts`
  std::size_t local_rank = 0;  // of this rank, among the ranks of its host

  // `nodes[r]`: the host of rank r.
  [[nodiscard]] static Layout of(const std::vector<proto::NodeId>& nodes, int rank);
  [[nodiscard]] const std::vector<int>& here() const { return hosts[host]; }
  [[nodiscard]] std::size_t local_size() const { return here().size(); }
  [[nodiscard]] std::size_t max_local_size() const;  // over all hosts
  [[nodiscard]] std::size_t host_of(int which) const;
  [[nodiscard]] bool is_here(int which) const;
  // `which` must be a rank of this host.
  [[nodiscard]] int local_rank_of(int which) const;
  // The rank that is the proxy on `of_host` of `which`, a rank of another host; as a local rank. A
  // proxy sends and receives the blocks of such a rank for all ranks of its own host.
  [[nodiscard]] std::size_t proxy_for(std::size_t of_host, int which) const;
  struct ProxiedRanks {
    std::vector<int> mine;    // ranks whose proxy is `of_local_rank`, ascending
    std::size_t maximum = 0;  // greatest length of such a list on this host
  };
  [[nodiscard]] ProxiedRanks ranks_proxied_by(std::size_t of_local_rank) const;
};

// Number of elements in the slice of each of `local_size` ranks of a host, a multiple of 64. The
// last slices may be shorter or empty.
[[nodiscard]] std::size_t slice_width(std::size_t elements, std::size_t local_size);
[[nodiscard]] Range slice_of_local_rank(std::size_t elements, std::size_t local_size,
                                        std::size_t local_rank);

// A part of a slice that has a single owner on every host.
struct Segment {
  Range range;
  std::uint32_t index = 0;  // among the segments of all ranks; the same on every rank
  std::vector<int> owners;  // owners[h]: the rank that owns the segment on host h
};
// The segments of this rank, ascending; together they are its slice.
[[nodiscard]] std::vector<Segment> segments_of(const Layout& layout, std::size_t elements);

// For recursive halving: the two halves of `whole`, and the part of `whole` that host `host` of
// `base` hosts (a power of two) holds after the last step. In the step of distance d (1, 2, 4 ...)
// a host keeps the low half if (host & d) == 0.
[[nodiscard]] std::pair<Range, Range> halves_of(Range whole);
[[nodiscard]] Range share_of_host(Range whole, std::size_t host, std::size_t base);

}  // namespace regroup::collective::net
