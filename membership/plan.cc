// The plan of the open step: docs/design/architecture.md section 4, rules 3 and 5. The check of the
// buffers: docs/design/interfaces.md, Buffers. Invariants: each leaf has one owner; a sealed sum is
// used whole or not at all, since its leaves cannot be separated; a leaf is computed again only if
// no usable seal has it.
#include "membership/plan.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <iterator>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "proto/canonical.h"

namespace regroup::membership {
namespace {

// A sealed interval of the open step, in the slot `slot_id`.
struct Sealed {
  proto::SlotId slot_id;
  proto::Interval leaves;
  bool planned = false;  // `slot_id` owned all of it in the plan before
  bool alive = false;
};

// Skips nodes without a member of the next World, since no member could read the seals there.
std::vector<Sealed> seals_of_step(
    proto::Step step, std::uint32_t shards, const std::vector<proto::SlotId>& before,
    const std::set<proto::NodeId>& nodes,
    const std::map<proto::NodeId, std::vector<proto::SlotReport>>& slots) {
  std::vector<Sealed> found;
  for (const auto& [node, of_node] : slots) {
    if (!nodes.contains(node)) continue;
    for (const proto::SlotReport& slot : of_node) {
      for (const proto::Seal& seal : slot.seals) {
        const proto::Interval& at = seal.leaves;
        if (seal.step != step || at.begin >= at.end || at.end > shards) continue;
        const proto::SlotId slot_id{node, slot.slot};
        const bool planned =
            !before.empty() && std::all_of(before.begin() + at.begin, before.begin() + at.end,
                                           [&](proto::SlotId s) { return s == slot_id; });
        found.push_back({slot_id, at, planned, slot.alive});
      }
    }
  }
  // If two slots hold the same leaf, the larger sum goes first (intervals of one tree are nested,
  // so it covers the smaller one), then the planned owner's, then a living member's.
  std::sort(found.begin(), found.end(), [](const Sealed& a, const Sealed& b) {
    if (a.leaves.size() != b.leaves.size()) return a.leaves.size() > b.leaves.size();
    if (a.planned != b.planned) return a.planned;
    if (a.alive != b.alive) return a.alive;
    return std::tie(a.leaves, a.slot_id) < std::tie(b.leaves, b.slot_id);
  });
  return found;
}

using Plan = std::vector<std::optional<proto::SlotId>>;

void keep_sealed(const std::vector<Sealed>& seals, Plan* plan) {
  for (const Sealed& s : seals) {
    const auto first = plan->begin() + s.leaves.begin, last = plan->begin() + s.leaves.end;
    // A sum can only be used whole: skip it if a part of it has another owner.
    if (std::all_of(first, last, [&](auto& owner) { return !owner || *owner == s.slot_id; })) {
      std::fill(first, last, s.slot_id);
    }
  }
}

// True if a member's buffers suffice to compute `leaves` in ascending order in addition to
// `sealed`, its complete leaves, folding siblings whenever possible.
bool fits(std::uint32_t shards, const std::vector<std::uint32_t>& sealed,
          const std::vector<std::uint32_t>& leaves) {
  const std::uint32_t buffers = proto::canonical_buffers(shards);
  std::set<proto::Interval> tree_nodes;
  const auto add = [&](std::uint32_t leaf) {
    proto::Interval tree_node{leaf, leaf + 1};
    while (const auto parent = proto::canonical_parent(shards, tree_node)) {
      const std::uint32_t middle = proto::canonical_split(*parent);
      const proto::Interval sibling = tree_node.begin < middle
                                          ? proto::Interval{middle, parent->end}
                                          : proto::Interval{parent->begin, middle};
      if (tree_nodes.erase(sibling) == 0) break;
      tree_node = *parent;
    }
    tree_nodes.insert(tree_node);
  };
  for (std::uint32_t leaf : sealed) add(leaf);
  for (std::uint32_t leaf : leaves) {
    if (tree_nodes.size() >= buffers) return false;
    add(leaf);
  }
  return true;
}

// Assigns `leaves` in runs, in rank order, so that the loads differ by at most one if possible.
void assign_orphans(const std::vector<std::uint32_t>& leaves,
                    const std::vector<proto::SlotId>& candidates,
                    const std::map<proto::SlotId, std::uint32_t>& load, Plan* plan) {
  using Candidate = std::pair<std::uint32_t, std::size_t>;  // load, and index in `candidates`
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> least;
  for (std::size_t candidate = 0; candidate < candidates.size(); ++candidate)
    least.push({load.at(candidates[candidate]), candidate});
  std::vector<std::uint32_t> quota(candidates.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto [leaves_of_it, candidate] = least.top();
    least.pop();
    least.push({leaves_of_it + 1, candidate});
    ++quota[candidate];
  }
  std::size_t at = 0;
  for (std::size_t candidate = 0; candidate < candidates.size(); ++candidate) {
    for (; quota[candidate] > 0; --quota[candidate]) (*plan)[leaves[at++]] = candidates[candidate];
  }
}

// Contiguous even shares, whatever was sealed before.
std::vector<proto::SlotId> even_shares(std::uint32_t shards,
                                       const std::vector<proto::SlotId>& candidates) {
  std::vector<proto::SlotId> plan(shards);
  const auto size = static_cast<std::uint32_t>(candidates.size());
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    const proto::Interval share = proto::share_of_rank(shards, size, rank);
    std::fill(plan.begin() + share.begin, plan.begin() + share.end, candidates[rank]);
  }
  return plan;
}

bool all_fit(std::uint32_t shards, const Plan& sealed, const std::vector<proto::SlotId>& plan,
             const std::vector<proto::WorldMember>& next) {
  std::map<proto::SlotId, std::vector<std::uint32_t>> complete, open;
  for (std::uint32_t leaf = 0; leaf < shards; ++leaf)
    (sealed[leaf] ? complete : open)[plan[leaf]].push_back(leaf);
  return std::all_of(next.begin(), next.end(), [&](const proto::WorldMember& m) {
    return fits(shards, complete[m.slot_id], open[m.slot_id]);
  });
}

}  // namespace

std::vector<proto::SlotId> plan_leaves(
    proto::Step step, std::uint32_t shards, const std::vector<proto::SlotId>& before,
    const std::vector<proto::WorldMember>& next,
    const std::map<proto::NodeId, std::vector<proto::SlotReport>>& slots) {
  std::vector<proto::SlotId> candidates;
  std::map<proto::SlotId, std::uint32_t> load;
  std::set<proto::NodeId> nodes;
  for (const proto::WorldMember& m : next) {
    nodes.insert(m.slot_id.node);
    load[m.slot_id] = 0;
    if (before.empty() || !(m.needs_state || m.replays)) candidates.push_back(m.slot_id);
  }
  assert(!candidates.empty());  // every World has a member with the state
  if (before.empty()) return even_shares(shards, candidates);
  Plan sealed(shards);
  keep_sealed(seals_of_step(step, shards, before, nodes, slots), &sealed);
  Plan plan = sealed;
  std::vector<std::uint32_t> orphans;
  for (std::uint32_t leaf = 0; leaf < shards; ++leaf) {
    if (plan[leaf]) continue;
    if (load.contains(before[leaf])) {
      plan[leaf] = before[leaf];
      ++load[before[leaf]];
    } else {
      orphans.push_back(leaf);
    }
  }
  assign_orphans(orphans, candidates, load, &plan);
  std::vector<proto::SlotId> out;
  std::transform(plan.begin(), plan.end(), std::back_inserter(out),
                 [](const auto& slot_id) { return *slot_id; });
  return all_fit(shards, sealed, out, next) ? out : even_shares(shards, candidates);
}

}  // namespace regroup::membership
