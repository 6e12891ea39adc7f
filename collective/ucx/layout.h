// Who sits where, and which elements go through whose hands. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/world.h"

namespace regroup::collective {

// Elements begin..end-1.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t size() const { return end - begin; }
};

// The ranks of a communicator by host. Hosts are ordered by their first rank.
struct Layout {
  std::vector<std::vector<int>> hosts;
  std::size_t host = 0;        // of this rank
  std::size_t local_rank = 0;  // among the ranks of its host

  // `nodes[r]` is where rank r sits.
  [[nodiscard]] static Layout of(const std::vector<core::NodeId>& nodes, int rank);
  [[nodiscard]] const std::vector<int>& here() const { return hosts[host]; }
  [[nodiscard]] std::size_t host_of(int rank) const;
};

// Elements that each of `local_size` members of a host stands for, the last ones fewer: a multiple of 64.
[[nodiscard]] std::size_t slice_width(std::size_t elements, std::size_t local_size);
[[nodiscard]] Range slice_of_local_rank(std::size_t elements, std::size_t local_size, std::size_t local_rank);

// A part of a slice that is in the same hands on every host.
struct Segment {
  Range range;
  std::uint32_t index = 0;  // among those of all ranks; the same everywhere
  std::vector<int> owners;  // rank by host
};
// Those of this rank, ascending; together they are its slice.
[[nodiscard]] std::vector<Segment> segments_of(const Layout& layout, std::size_t elements);

// Recursive halving: the halves of `whole`, and what is left at host `host` of `base`, a power of two, which
// keeps the low half where the bit of its distance (1 first) is 0.
[[nodiscard]] std::pair<Range, Range> halves_of(Range whole);
[[nodiscard]] Range share_of_host(Range whole, std::size_t host, std::size_t base);

}  // namespace regroup::collective
