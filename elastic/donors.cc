// Serves docs/design/elastic_hosts.md, State.
#include "elastic/donors.h"

#include <algorithm>
#include <set>

namespace regroup::elastic {
namespace {

using Nodes = std::set<proto::NodeId>;

// Lists nodes: those with a member that needs the state, or those with one that has it. A learner
// does neither: it has an older state and replays results.
Nodes nodes_with(const proto::World& world, bool needs_state) {
  Nodes nodes;
  for (const proto::WorldMember& m : world.members) {
    if (m.needs_state == needs_state && !m.replays) nodes.insert(m.slot_id.node);
  }
  return nodes;
}

}  // namespace

bool has_joining_members(const proto::World& world) {
  return std::ranges::any_of(world.members, &proto::WorldMember::needs_state);
}

bool rank_0_has_state(const proto::World& world) {
  return !world.members[0].needs_state && !world.members[0].replays;
}

std::vector<proto::SlotId> holders_on(const proto::World& world, proto::NodeId node) {
  std::vector<proto::SlotId> holders;
  for (const proto::WorldMember& m : world.members) {
    if (m.slot_id.node == node && !m.needs_state && !m.replays) holders.push_back(m.slot_id);
  }
  return holders;
}

std::vector<proto::SlotId> members_on(const proto::World& world, proto::NodeId node) {
  std::vector<proto::SlotId> members;
  for (const proto::WorldMember& m : world.members) {
    if (m.slot_id.node == node) members.push_back(m.slot_id);
  }
  return members;
}

std::optional<int> fetcher_of(const proto::World& world, proto::NodeId node) {
  if (nodes_with(world, false).contains(node)) return std::nullopt;
  const auto first = std::ranges::find_if(
      world.members, [&](const auto& m) { return m.slot_id.node == node && m.needs_state; });
  if (first == world.members.end()) return std::nullopt;
  return static_cast<int>(first - world.members.begin());
}

proto::NodeId source_of(const proto::World& world, proto::NodeId node) {
  const Nodes sources = nodes_with(world, false);
  std::size_t number = 0;  // of the host among those with fetchers
  for (const proto::NodeId other : nodes_with(world, true))
    number += other < node && !sources.contains(other);
  return *std::next(sources.begin(), static_cast<std::ptrdiff_t>(number % sources.size()));
}

std::vector<int> all_fetchers(const proto::World& world) {
  std::vector<int> fetchers;
  for (const proto::NodeId node : nodes_with(world, true)) {
    if (const auto fetcher = fetcher_of(world, node)) fetchers.push_back(*fetcher);
  }
  return fetchers;
}

std::vector<int> fetchers_from(const proto::World& world, proto::NodeId node) {
  std::vector<int> fetchers;
  for (const proto::NodeId other : nodes_with(world, true)) {
    const auto fetcher = fetcher_of(world, other);
    if (fetcher && source_of(world, other) == node) fetchers.push_back(*fetcher);
  }
  return fetchers;
}

std::vector<proto::SlotId> writers_of_snapshot(const proto::World& world, proto::NodeId node) {
  if (const auto fetcher = fetcher_of(world, node))
    return {world.members[static_cast<std::size_t>(*fetcher)].slot_id};
  const bool wanted =
      !fetchers_from(world, node).empty() || std::ranges::any_of(world.members, [&](const auto& m) {
        return m.slot_id.node == node && m.needs_state;
      });
  return wanted ? holders_on(world, node) : std::vector<proto::SlotId>{};
}

}  // namespace regroup::elastic
