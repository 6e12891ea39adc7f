// plan_leaves(): examples, and properties over random seals and deaths.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "membership/plan.h"
#include "proto/canonical.h"

namespace regroup::membership {
namespace {

using proto::SlotId;
using Reports = std::map<proto::NodeId, std::vector<proto::SlotReport>>;

constexpr proto::Step kStep = 7;

proto::WorldMember member(proto::SlotIndex slot, bool needs_state = false) {
  return {.id = slot, .slot_id = {0, slot}, .needs_state = needs_state};
}
std::vector<SlotId> slot_ids(const std::vector<proto::SlotIndex>& slots) {
  std::vector<SlotId> out;
  for (proto::SlotIndex s : slots) out.push_back({0, s});
  return out;
}
proto::SlotReport slot_report(proto::SlotIndex slot, const std::vector<proto::Interval>& sealed,
                              bool alive = true, proto::Step step = kStep) {
  proto::SlotReport out{.member = slot, .slot = slot, .alive = alive};
  for (proto::Interval i : sealed) out.seals.push_back({step, i});
  return out;
}

TEST(Plan, TheFirstWorldSharesEvenly) {
  EXPECT_EQ(plan_leaves(1, 8, {}, {member(0), member(1, true), member(2, true)}, {}),
            slot_ids({0, 0, 1, 1, 1, 2, 2, 2}));
}

TEST(Plan, KeepsWhatIsSealedAlsoByTheDead) {
  const Reports reports{{0, {slot_report(0, {{0, 2}}), slot_report(1, {{4, 5}}, false)}}};
  EXPECT_EQ(
      plan_leaves(kStep, 8, slot_ids({0, 0, 0, 0, 1, 1, 1, 1}), {member(0), member(2)}, reports),
      slot_ids({0, 0, 0, 0, 1, 0, 2, 2}));
}

TEST(Plan, SealsOfAnotherStepAreVoid) {
  const Reports reports{{0, {slot_report(1, {{0, 4}}, false, kStep - 1)}}};
  EXPECT_EQ(plan_leaves(kStep, 4, slot_ids({1, 1, 1, 1}), {member(0)}, reports),
            slot_ids({0, 0, 0, 0}));
}

// A host that is lost is in no report, so what it sealed is computed again (rule seedhost of
// tests/model).
TEST(Plan, SealsOfALostHostAreVoid) {
  const std::vector<SlotId> before{{0, 0}, {0, 0}, {1, 0}, {1, 0}};
  const proto::WorldMember left = member(0);
  const Reports reports{{0, {slot_report(0, {{0, 2}})}}};
  EXPECT_EQ(plan_leaves(kStep, 4, before, {left}, reports), slot_ids({0, 0, 0, 0}));
}

TEST(Plan, SealsOnANodeWithoutAMemberOfTheNextWorldAreVoid) {
  const std::vector<SlotId> before{{0, 0}, {0, 0}, {1, 0}, {1, 0}};
  const Reports reports{{0, {slot_report(0, {{0, 2}})}}, {1, {slot_report(0, {{2, 4}}, false)}}};
  EXPECT_EQ(plan_leaves(kStep, 4, before, {member(0)}, reports), slot_ids({0, 0, 0, 0}));
  proto::WorldMember reader = member(3, true);
  reader.slot_id = {1, 1};
  EXPECT_EQ(plan_leaves(kStep, 4, before, {member(0), reader}, reports), before);
}

TEST(Plan, GivesTheLeavesOfTheLostToThoseWithTheFewestLeft) {
  const Reports reports{
      {0, {slot_report(0, {{0, 2}, {2, 3}})}}};  // one left to compute; 1 has four
  EXPECT_EQ(plan_leaves(kStep, 12, slot_ids({0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}),
                        {member(0), member(1)}, reports),
            slot_ids({0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0}));
}

TEST(Plan, NewcomersGetNoLeaves) {
  EXPECT_EQ(plan_leaves(kStep, 4, slot_ids({0, 0, 1, 1}), {member(0), member(3, true)}, {}),
            slot_ids({0, 0, 0, 0}));
}

TEST(Plan, OfTwoSumsOverALeafTheLargerIsKeptWhole) {
  const Reports reports{{0, {slot_report(0, {{0, 2}}), slot_report(1, {{1, 2}}, false)}}};
  EXPECT_EQ(plan_leaves(kStep, 2, slot_ids({1, 1}), {member(0)}, reports), slot_ids({0, 0}));
}

TEST(Plan, FallsBackToEvenSharesWhenBuffersDoNotSuffice) {
  // Every other leaf sealed by the dead: a lone survivor cannot fold any two of the 16 others, and
  // has 9 buffers.
  std::vector<proto::Interval> odd;
  for (std::uint32_t leaf = 1; leaf < 32; leaf += 2) odd.push_back({leaf, leaf + 1});
  const Reports reports{{0, {slot_report(1, odd, false)}}};
  ASSERT_LT(proto::canonical_buffers(32), 16U);
  EXPECT_EQ(plan_leaves(kStep, 32, std::vector<SlotId>(32, SlotId{0, 1}), {member(0)}, reports),
            std::vector<SlotId>(32, SlotId{0, 0}));
}

// Nodes that a set of leaves folds into.
std::size_t nodes_of(std::uint32_t shards, const std::set<std::uint32_t>& leaves) {
  std::size_t nodes = 0;
  for (std::uint32_t at = 0; at < shards;) {
    if (!leaves.contains(at)) {
      ++at;
      continue;
    }
    proto::Interval node{at, at + 1};
    for (auto up = proto::canonical_parent(shards, node); up && up->begin == at;
         up = proto::canonical_parent(shards, *up)) {
      bool whole = true;
      for (std::uint32_t l = up->begin; l < up->end; ++l) whole &= leaves.contains(l);
      if (!whole) break;
      node = *up;
    }
    ++nodes;
    at = node.end;
  }
  return nodes;
}

struct Case {
  std::uint32_t shards;
  std::vector<SlotId> before;
  std::vector<proto::WorldMember> next;
  Reports reports;
};

Case random_case(std::mt19937& random) {
  const auto below = [&](std::uint32_t n) {
    return std::uniform_int_distribution<std::uint32_t>(0, n - 1)(random);
  };
  Case c;
  c.shards = 1 + below(40);
  const std::uint32_t size = 1 + below(6);
  for (std::uint32_t leaf = 0; leaf < c.shards; ++leaf) {
    c.before.push_back({0, static_cast<proto::SlotIndex>(leaf * size / c.shards)});
  }
  for (proto::SlotIndex slot = 0; slot < size; ++slot) {
    const bool alive = slot == 0 || below(3) > 0;
    std::vector<proto::Interval> sealed;
    for (std::uint32_t leaf = 0; leaf < c.shards; ++leaf) {
      if (c.before[leaf].slot == slot && below(2) == 0) sealed.push_back({leaf, leaf + 1});
    }
    c.reports[0].push_back(slot_report(slot, sealed, alive));
    if (alive) c.next.push_back(member(slot));
  }
  if (below(2) == 0) c.next.push_back(member(static_cast<proto::SlotIndex>(size), true));
  return c;
}

TEST(Plan, PropertiesHoldForRandomRounds) {
  std::mt19937 random(11);
  int kept_all = 0;
  for (int round = 0; round < 5000; ++round) {
    SCOPED_TRACE(round);
    const Case c = random_case(random);
    const auto plan = plan_leaves(kStep, c.shards, c.before, c.next, c.reports);
    ASSERT_EQ(plan, plan_leaves(kStep, c.shards, c.before, c.next, c.reports));
    ASSERT_EQ(plan.size(), c.shards);  // one slot per leaf: each is covered exactly once
    std::map<SlotId, std::uint32_t> load;
    std::map<SlotId, std::set<std::uint32_t>> sealed;
    std::map<SlotId, bool> lives;
    for (const auto& m : c.next) lives[m.slot_id] = true;
    for (const auto& l : c.reports.at(0)) {
      for (const proto::Seal& s : l.seals) sealed[{0, l.slot}].insert(s.leaves.begin);
    }
    bool all_kept = true;
    std::vector<SlotId> shares(c.shards);
    const auto candidates =
        static_cast<std::uint32_t>(c.next.size() - (c.next.back().needs_state ? 1 : 0));
    for (std::uint32_t rank = 0; rank < candidates; ++rank) {
      const proto::Interval share = proto::share_of_rank(c.shards, candidates, rank);
      std::fill(shares.begin() + share.begin, shares.begin() + share.end, c.next[rank].slot_id);
    }
    for (std::uint32_t leaf = 0; leaf < c.shards; ++leaf) {
      const bool is_sealed = sealed[plan[leaf]].contains(leaf);
      ASSERT_TRUE(is_sealed || lives[plan[leaf]])
          << "leaf " << leaf << " lies with the dead, not sealed";
      if (!is_sealed) ++load[plan[leaf]];
      all_kept &= is_sealed || !sealed[c.before[leaf]].contains(leaf);
    }
    kept_all += all_kept;
    for (const auto& m : c.next) {
      if (m.needs_state) {
        ASSERT_EQ(load[m.slot_id], 0U);
      }
      if (plan == shares)
        continue;  // what anybody's buffers can hold, once void seals are withdrawn
      std::set<std::uint32_t> held;
      for (std::uint32_t leaf = 0; leaf < c.shards; ++leaf) {
        if (all_kept && plan[leaf] == m.slot_id && sealed[m.slot_id].contains(leaf))
          held.insert(leaf);
      }
      for (std::uint32_t leaf = 0; leaf < c.shards; ++leaf) {
        if (plan[leaf] != m.slot_id || !held.insert(leaf).second) continue;
        held.erase(leaf);
        ASSERT_LT(nodes_of(c.shards, held), proto::canonical_buffers(c.shards))
            << "no buffer for leaf " << leaf;
        held.insert(leaf);
      }
    }
    if (!all_kept) continue;
    // A member that received a leaf of a lost one has at most one more to compute than any other
    // candidate.
    std::map<SlotId, std::uint32_t> own;
    for (std::uint32_t leaf = 0; leaf < c.shards; ++leaf)
      own[plan[leaf]] += plan[leaf] == c.before[leaf] && !sealed[plan[leaf]].contains(leaf);
    for (const auto& a : c.next) {
      for (const auto& b : c.next) {
        if (load[a.slot_id] > own[a.slot_id] && !b.needs_state) {
          ASSERT_LE(load[a.slot_id], load[b.slot_id] + 1);
        }
      }
    }
  }
  EXPECT_GT(kept_all, 2500);  // the fallback is the exception
}

}  // namespace
}  // namespace regroup::membership
