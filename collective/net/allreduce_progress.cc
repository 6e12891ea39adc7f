// Blocks are as wide as slices, so that the edges of the two coincide.
#include "collective/net/allreduce_progress.h"

#include <algorithm>

namespace regroup::collective::net {

using proto::Interval;

// The nodes; then, if there are blocks, an empty interval that holds the generation, and the
// blocks.
std::vector<Interval> encode(const AllreduceProgress& progress) {
  std::vector<Interval> out = progress.tree_nodes;
  if (progress.completed.empty()) return out;
  out.push_back({progress.generation, progress.generation});
  out.insert(out.end(), progress.completed.begin(), progress.completed.end());
  return out;
}

AllreduceProgress decode_progress(std::span<const std::byte> bytes, std::uint32_t count) {
  AllreduceProgress out{tree_nodes_in(bytes)};
  const auto end =
      std::ranges::find_if(out.tree_nodes, [](const Interval& i) { return i.begin == i.end; });
  if (end == out.tree_nodes.end()) return out;
  out.generation = end->begin;
  for (auto next = end + 1; next != out.tree_nodes.end(); ++next) {
    const std::uint32_t from = out.completed.empty() ? 0 : out.completed.back().end;
    if (next->begin >= from && next->begin < next->end && next->end <= count)
      out.completed.push_back(*next);
  }
  out.tree_nodes.erase(end, out.tree_nodes.end());
  return out;
}

Blocks marked(const SumBlocks& blocks) {
  Blocks out;
  for (std::uint32_t i = 0; i < blocks.marks.size(); ++i) {
    if (blocks.marks[i].load(std::memory_order_acquire) != blocks.sum) continue;
    if (out.empty() || out.back().end != i) out.push_back({i, i});
    out.back().end = i + 1;
  }
  return out;
}

Blocks common_blocks(const AllreduceProgress& a, const AllreduceProgress& b) {
  Blocks out;
  if (a.generation != b.generation) return out;
  for (auto i = a.completed.begin(), j = b.completed.begin();
       i != a.completed.end() && j != b.completed.end();) {
    const Interval both{std::max(i->begin, j->begin), std::min(i->end, j->end)};
    if (both.begin < both.end) out.push_back(both);
    (i->end < j->end ? i : j) += 1;
  }
  return out;
}

BlockGrid::BlockGrid(std::size_t elements, std::size_t count)
    : elements_(elements), width_(slice_width(elements, std::max<std::size_t>(count, 1))) {}

Range BlockGrid::elements_of(Interval blocks) const {
  return {std::min(elements_, blocks.begin * width_), std::min(elements_, blocks.end * width_)};
}

std::vector<Range> BlockGrid::missing(Range range, const Blocks& completed) const {
  std::vector<Range> out;
  for (const Interval& blocks : completed) {
    const Range has = elements_of(blocks);
    if (has.end <= range.begin || has.begin >= range.end) continue;
    if (range.begin < has.begin) out.push_back({range.begin, has.begin});
    range.begin = std::min(range.end, has.end);
  }
  if (range.begin < range.end) out.push_back(range);
  return out;
}

// The last block may be shorter than the others.
Interval BlockGrid::whole_blocks(Range range) const {
  if (width_ == 0) return {};
  const auto begin = static_cast<std::uint32_t>((range.begin + width_ - 1) / width_);
  const std::size_t last = range.end == elements_ ? range.end + width_ - 1 : range.end;
  return {begin, std::max(begin, static_cast<std::uint32_t>(last / width_))};
}

void mark(const SumBlocks& blocks, Interval which) {
  const auto count = static_cast<std::uint32_t>(blocks.marks.size());
  for (std::uint32_t i = which.begin; i < std::min(which.end, count); ++i)
    blocks.marks[i].store(blocks.sum, std::memory_order_release);
}

}  // namespace regroup::collective::net
