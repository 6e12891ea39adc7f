// All ranks compute the same rails from the same World and the same GPUs.
#include "collective/nccl/rails.h"

#include <algorithm>

#include "proto/canonical.h"

namespace regroup::collective::nccl {
namespace {

// Numbers of the hosts by rank, in the order of their first ranks.
std::vector<int> hosts_of(const proto::World& world, std::vector<proto::NodeId>* nodes) {
  std::vector<int> out;
  for (const proto::WorldMember& member : world.members) {
    const auto known = std::ranges::find(*nodes, member.slot_id.node);
    out.push_back(static_cast<int>(known - nodes->begin()));
    if (known == nodes->end()) nodes->push_back(member.slot_id.node);
  }
  return out;
}

// The first rank of each GPU of the host.
std::vector<int> first_ranks(int host, const std::vector<int>& host_of,
                             const std::vector<std::string>& gpus) {
  std::vector<int> out;
  for (int rank = 0; rank < static_cast<int>(host_of.size()); ++rank) {
    const auto gpu = [&](int of) -> const std::string& {
      return gpus[static_cast<std::size_t>(of)];
    };
    const bool first =
        std::ranges::none_of(out, [&](int before) { return gpu(before) == gpu(rank); });
    if (host_of[static_cast<std::size_t>(rank)] == host && first) out.push_back(rank);
  }
  return out;
}

}  // namespace

std::optional<int> Rails::rail_of(int rank) const {
  for (std::size_t rail = 0; rail < ranks.size(); ++rail)
    if (std::ranges::find(ranks[rail], rank) != ranks[rail].end()) return static_cast<int>(rail);
  return std::nullopt;
}

Rails rails_of(const proto::World& world, const std::vector<std::string>& gpus) {
  Rails out;
  std::vector<proto::NodeId> nodes;
  out.host_of = hosts_of(world, &nodes);
  std::vector<std::vector<int>> by_host;
  for (int host = 0; host < static_cast<int>(nodes.size()); ++host)
    by_host.push_back(first_ranks(host, out.host_of, gpus));
  const std::size_t rails = std::ranges::min(by_host, {}, &std::vector<int>::size).size();
  out.ranks.resize(rails);
  for (std::size_t rail = 0; rail < rails; ++rail)
    for (const std::vector<int>& ranks : by_host) out.ranks[rail].push_back(ranks[rail]);
  return out;
}

std::vector<int> possible_leaders(const proto::World& world, const std::vector<std::string>& gpus) {
  std::vector<proto::NodeId> nodes;
  return first_ranks(0, hosts_of(world, &nodes), gpus);
}

std::vector<int> hosts_of_leaves(const proto::World& world,
                                 const std::vector<proto::SlotId>& owners) {
  std::vector<proto::NodeId> nodes;
  static_cast<void>(hosts_of(world, &nodes));
  std::vector<int> out;
  for (const proto::SlotId& owner : owners)
    out.push_back(static_cast<int>(std::ranges::find(nodes, owner.node) - nodes.begin()));
  return out;
}

std::vector<proto::Interval> nodes_on(int host, const std::vector<int>& host_of_leaf, bool single) {
  std::vector<proto::Interval> out;
  const auto leaves = static_cast<std::uint32_t>(host_of_leaf.size());
  for (std::uint32_t begin = 0, end = 0; begin < leaves; begin = end) {
    const int on = host_of_leaf[begin];
    for (end = begin + 1; end < leaves && host_of_leaf[end] == on && !single;) ++end;
    if (on != host) continue;
    const auto cover = proto::canonical_cover(leaves, {begin, end});
    out.insert(out.end(), cover.begin(), cover.end());
  }
  return out;
}

}  // namespace regroup::collective::nccl
