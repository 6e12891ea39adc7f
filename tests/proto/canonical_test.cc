// Properties of the canonical tree, checked against its definition written out again as recursion.
#include "proto/canonical.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace regroup::proto {
namespace {

// Every node of the tree over [a,b) with its parent, from the definition in
// docs/design/architecture.md section 1.
void enumerate(Interval node, std::vector<std::pair<Interval, Interval>>* out, Interval parent) {
  out->emplace_back(node, parent);
  if (node.size() < 2) return;
  std::uint32_t power = 1;
  while (power * 2 < node.size()) power *= 2;
  enumerate({node.begin, node.begin + power}, out, node);
  enumerate({node.begin + power, node.end}, out, node);
}

TEST(Canonical, NodesAndParentsAreThoseOfTheDefinition) {
  for (std::uint32_t leaves = 1; leaves <= 40; ++leaves) {
    std::vector<std::pair<Interval, Interval>> nodes;
    enumerate({0, leaves}, &nodes, {});
    std::set<Interval> known;
    for (const auto& [node, parent] : nodes) {
      known.insert(node);
      EXPECT_TRUE(is_canonical_node(leaves, node));
      const auto found = canonical_parent(leaves, node);
      EXPECT_EQ(found.has_value(), node != (Interval{0, leaves}));
      if (found) {
        EXPECT_EQ(*found, parent);
      }
    }
    EXPECT_EQ(known.size(), 2 * leaves - 1);
    for (std::uint32_t a = 0; a <= leaves + 1; ++a) {
      for (std::uint32_t b = a; b <= leaves + 2; ++b) {
        if (known.contains({a, b})) continue;
        EXPECT_FALSE(is_canonical_node(leaves, {a, b})) << leaves << ": " << a << ".." << b;
        EXPECT_FALSE(canonical_parent(leaves, {a, b}).has_value())
            << leaves << ": " << a << ".." << b;
      }
    }
  }
}

TEST(Canonical, CoverIsExactCanonicalAndMinimal) {
  for (std::uint32_t leaves = 1; leaves <= 40; ++leaves) {
    for (std::uint32_t a = 0; a < leaves; ++a) {
      for (std::uint32_t b = a + 1; b <= leaves; ++b) {
        const auto nodes = canonical_cover(leaves, {a, b});
        std::uint32_t next = a;
        for (const Interval node : nodes) {
          ASSERT_TRUE(is_canonical_node(leaves, node));
          ASSERT_EQ(node.begin, next);
          next = node.end;
          // Minimal: the tree is laminar, so a cover has no spare node unless a parent fits inside
          // too.
          const auto parent = canonical_parent(leaves, node);
          ASSERT_FALSE(parent && a <= parent->begin && parent->end <= b);
        }
        ASSERT_EQ(next, b);
      }
    }
  }
  EXPECT_TRUE(canonical_cover(8, {3, 3}).empty());
  EXPECT_TRUE(canonical_cover(0, {0, 1}).empty());
  EXPECT_EQ(canonical_cover(4, {2, 9}),
            (std::vector<Interval>{{2, 4}}));  // what lies outside is no leaf
}

// A member folds its leaves in order: a leaf is computed into a fresh buffer, and while the two
// newest sums are siblings they become one. Returns the most buffers in use at any time.
std::size_t most_buffers(std::uint32_t leaves, Interval range) {
  std::vector<Interval> held;
  std::size_t most = 0;
  for (std::uint32_t leaf = range.begin; leaf < range.end; ++leaf) {
    held.push_back({leaf, leaf + 1});
    most = std::max(most, held.size());
    while (held.size() >= 2) {
      const Interval right = held.back();
      const Interval left = held[held.size() - 2];
      const auto parent = canonical_parent(leaves, right);
      if (!parent || parent != canonical_parent(leaves, left)) break;
      held.pop_back();
      held.back() = *parent;
    }
  }
  EXPECT_EQ(held, canonical_cover(leaves, range));
  return most;
}

TEST(Canonical, EagerFoldingFitsTheReservedBuffers) {
  for (std::uint32_t leaves = 1; leaves <= 300; ++leaves) {
    std::size_t most = 0;
    // All ranges of the small trees, a sample of the rest.
    const std::uint32_t stride = leaves <= 70 ? 1 : 13;
    for (std::uint32_t a = 0; a < leaves; a += stride) {
      for (std::uint32_t b = a + 1; b <= leaves; b += stride)
        most = std::max(most, most_buffers(leaves, {a, b}));
    }
    for (std::uint32_t a : {0U, 1U}) {
      for (std::uint32_t b : {leaves, leaves - 1}) {
        if (a < b) most = std::max(most, most_buffers(leaves, {a, b}));
      }
    }
    ASSERT_LE(most, canonical_buffers(leaves)) << leaves << " leaves";
  }
}

TEST(Canonical, BufferCountsOfTheFormula) {
  constexpr struct {
    std::uint32_t leaves, buffers;
  } kRows[] = {{1, 2}, {2, 2},  {3, 3},    {4, 3},     {5, 5},     {8, 5},
               {9, 7}, {16, 7}, {300, 17}, {4096, 23}, {16384, 27}};
  for (const auto& row : kRows) EXPECT_EQ(canonical_buffers(row.leaves), row.buffers) << row.leaves;
}

}  // namespace
}  // namespace regroup::proto
