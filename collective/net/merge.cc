// Traverses the canonical tree.
#include "collective/net/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "proto/canonical.h"

namespace regroup::collective::net {
namespace {

using base::Result;
using proto::Interval;

std::string text_of(std::span<const Interval> nodes) {
  std::string text;
  for (const Interval& node : nodes) text += fmt::format(" [{},{})", node.begin, node.end);
  return text;
}

// Joins `parts`, which are all within `node`, into the largest nodes and appends these to `out`.
void collect(Interval node, std::span<const Interval> parts, TreeNodes* out) {
  std::uint32_t held = 0;
  for (const Interval& part : parts) held += part.size();
  if (held == 0) return;
  if (held == node.size()) return out->push_back(node);
  const std::uint32_t middle = proto::canonical_split(node);
  const auto right =
      std::ranges::partition_point(parts, [&](const Interval& p) { return p.begin < middle; });
  const auto lefts = static_cast<std::size_t>(right - parts.begin());
  collect({node.begin, middle}, parts.first(lefts), out);
  collect({middle, node.end}, parts.subspan(lefts), out);
}

Result<Merge::Output> output_of(Interval node, std::span<const Interval> parts,
                                std::vector<std::uint32_t> inputs, bool whole) {
  Merge::Output out{std::move(inputs), std::nullopt};
  if (parts.size() == 1 && !whole) return out;
  TreeNodes shifted;
  for (const Interval& part : parts)
    shifted.push_back({part.begin - node.begin, part.end - node.begin});
  REGROUP_ASSIGN_OR_RETURN(out.fold, reduce::TreeFold::compile(shifted, node.size()));
  return out;
}

}  // namespace

TreeNodes tree_nodes_in(std::span<const std::byte> bytes) {
  TreeNodes nodes(bytes.size() / sizeof(Interval));
  if (!nodes.empty()) std::memcpy(nodes.data(), bytes.data(), nodes.size() * sizeof(Interval));
  return nodes;
}

Result<TreeNodes> largest_tree_nodes(TreeNodes parts, std::uint32_t leaves) {
  std::ranges::sort(parts);
  bool valid = true;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    valid = valid && proto::is_canonical_node(leaves, parts[i]);
    valid = valid && (i == 0 || parts[i - 1].end <= parts[i].begin);
  }
  if (!valid) {
    return base::invalid_argument(fmt::format(
        "sum: these are not disjoint nodes of the tree over {} leaves:{}", leaves, text_of(parts)));
  }
  TreeNodes out;
  if (leaves > 0) collect({0, leaves}, parts, &out);
  return out;
}

Result<Merge> plan_merge(std::span<const TreeNodes> lists, std::uint32_t leaves, bool whole) {
  TreeNodes all;
  for (const TreeNodes& list : lists) all.insert(all.end(), list.begin(), list.end());
  std::vector<std::uint32_t> order(all.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&](std::uint32_t i) { return all[i]; });
  std::ranges::sort(all);
  REGROUP_ASSIGN_OR_RETURN(auto nodes, largest_tree_nodes(all, leaves));
  Merge out{std::move(nodes), {}};
  std::size_t next = 0;
  for (const Interval& node : out.tree_nodes) {
    const std::size_t first = next;
    while (next < all.size() && all[next].end <= node.end) ++next;
    const auto at = order.begin() + static_cast<std::ptrdiff_t>(first);
    REGROUP_ASSIGN_OR_RETURN(
        auto output, output_of(node, std::span(all).subspan(first, next - first),
                               {at, at + static_cast<std::ptrdiff_t>(next - first)}, whole));
    out.outputs.push_back(std::move(output));
  }
  return out;
}

namespace {

// The nodes by host after each host of the base has merged with its partner at `distance`.
Result<std::vector<TreeNodes>> merged_pairs(const std::vector<TreeNodes>& now, std::size_t distance,
                                            std::uint32_t leaves) {
  std::vector<TreeNodes> next;
  for (std::size_t i = 0; i < now.size(); ++i) {
    TreeNodes both = now[i];
    both.insert(both.end(), now[i ^ distance].begin(), now[i ^ distance].end());
    REGROUP_ASSIGN_OR_RETURN(auto nodes, largest_tree_nodes(std::move(both), leaves));
    next.push_back(std::move(nodes));
  }
  return next;
}

}  // namespace

Result<Halving> plan_halving(std::size_t host, std::span<const TreeNodes> by_host,
                             std::uint32_t leaves) {
  REGROUP_ASSIGN_OR_RETURN(auto whole, plan_merge(by_host, leaves, true));
  if (whole.tree_nodes != TreeNodes{{0, leaves}}) {
    return base::invalid_argument(
        fmt::format("sum: the hosts together hold{}; expected each of {} leaves once",
                    text_of(whole.tree_nodes), leaves));
  }
  Halving out;
  out.base = std::bit_floor(by_host.size());
  if (host >= out.base) return out;
  std::vector<TreeNodes> now(by_host.begin(),
                             by_host.begin() + static_cast<std::ptrdiff_t>(out.base));
  std::vector<TreeNodes> lists{now[host]};
  for (std::size_t distance = 1; distance < out.base; distance *= 2) {
    const std::size_t partner = host ^ distance;
    out.steps.push_back({partner, (host & distance) == 0, now[partner].size(), {}});
    lists = {now[host], now[partner]};
    if (distance * 2 == out.base) break;
    auto merge = plan_merge(lists, leaves);
    auto next = merged_pairs(now, distance, leaves);
    if (!merge.ok() || !next.ok()) return merge.ok() ? next.status() : merge.status();
    out.steps.back().merge = std::move(*merge);
    now = std::move(*next);
  }
  for (std::size_t extra = out.base; extra < by_host.size(); ++extra) {
    out.extra_tree_nodes.push_back(by_host[extra].size());
    lists.push_back(by_host[extra]);
  }
  REGROUP_ASSIGN_OR_RETURN(out.last, plan_merge(lists, leaves, true));
  return out;
}

}  // namespace regroup::collective::net
