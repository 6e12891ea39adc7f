// Sums of leaves: whatever order they come in, the bits are those of the canonical tree.
#include "collective/ps/step_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "proto/canonical.h"

namespace regroup::collective::ps::testing::step_sums {
namespace {

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}
std::vector<float> floats_of(const std::vector<std::byte>& bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}
RangeGradients rows(std::vector<std::uint64_t> positions, const std::vector<float>& values) {
  return {.dtype = Dtype::kFloat32,
          .dim = static_cast<std::uint32_t>(values.size() / positions.size()),
          .positions = std::move(positions),
          .values = bytes_of(values)};
}
RangeGradients dense(const std::vector<float>& values) { return {.values = bytes_of(values)}; }

TEST(PsStepSums, APositionThatOneSideLacksKeepsItsBits) {
  const RangeGradients sum = add(rows({1, 5, 9}, {-0.0F, 1, 2}), rows({5, 7}, {10, -0.0F}));
  EXPECT_EQ(sum.positions, (std::vector<std::uint64_t>{1, 5, 7, 9}));
  const std::vector<float> values = floats_of(sum.values);
  EXPECT_EQ(values, (std::vector<float>{0, 11, 0, 2}));
  EXPECT_TRUE(std::signbit(values[0]));
  EXPECT_TRUE(std::signbit(values[2]));
}

TEST(PsStepSums, RowsThatFollowOneAnotherAreJoined) {
  const RangeGradients high = rows({7, 8}, {5, 6, 7, 8}), low = rows({1, 2}, {1, 2, 3, 4});
  const RangeGradients expected = rows({1, 2, 7, 8}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(add(low, high), expected);
  EXPECT_EQ(add(high, low), expected);
}

TEST(PsStepSums, APushWithoutRowsAddsNothing) {
  const RangeGradients none{.dim = 2}, some = rows({1, 2}, {1, 2, 3, 4});
  EXPECT_EQ(add(none, some), some);
  EXPECT_EQ(add(some, none), some);
}

TEST(PsStepSums, IntegersWrapAround) {
  RangeGradients left{.dtype = Dtype::kInt32, .values = bytes_of({0})}, right = left;
  const std::int32_t most = INT32_MAX, one = 1, least = INT32_MIN;
  std::memcpy(left.values.data(), &most, 4);
  std::memcpy(right.values.data(), &one, 4);
  const RangeGradients sum = add(left, right);
  EXPECT_EQ(std::memcmp(sum.values.data(), &least, 4), 0);
}

TEST(PsStepSums, ScalarsOfAStepAreOfOneKind) {
  StepSums sums(4);
  EXPECT_TRUE(sums.check_scalars_of(3, {.lr = 0.1}).ok());
  EXPECT_TRUE(sums.check_scalars_of(3, {.lr = 0.1}).ok());
  EXPECT_TRUE(sums.check_scalars_of(4, {.lr = 0.2}).ok());
  EXPECT_EQ(sums.check_scalars_of(3, {.lr = 0.2}).message(),
            "push: expected lr 0.1 as another leaf of the step has it, got 0.2");
}

// Leaf `leaf` of a step: a dense range that every third leaf lacks, and rows that overlap.
ShardGradients leaf_of(std::uint32_t leaf) {
  std::mt19937 random(leaf);
  const auto next = [&] {
    return std::ldexp(static_cast<float>(random()), -static_cast<int>(random() % 40));
  };
  ShardGradients out;
  if (leaf % 3 != 0) add_push(out, 1, dense({next(), next(), next()}));
  std::vector<std::uint64_t> positions;
  for (std::uint64_t position = 0; position < 20; ++position) {
    if (random() % 3 != 0) positions.push_back(position);
  }
  std::vector<float> values(positions.size() * 2);
  std::ranges::generate(values, next);
  if (!positions.empty()) add_push(out, 2, rows(positions, values));
  return out;
}
// The sum of a node of the tree, from its definition.
ShardGradients sum_of(proto::Interval node) {
  if (node.size() == 1) return leaf_of(node.begin);
  const std::uint32_t split = proto::canonical_split(node);
  ShardGradients left = sum_of({node.begin, split});
  for (const auto& [range, gradients] : sum_of({split, node.end})) add_push(left, range, gradients);
  return left;
}

TEST(PsStepSums, TheOrderInWhichLeavesComeDoesNotMatter) {
  std::mt19937 random(1);
  for (const std::uint32_t leaves : {1U, 2U, 3U, 5U, 8U, 13U, 64U}) {
    const ShardGradients expected = sum_of({0, leaves});
    std::vector<std::uint32_t> order(leaves);
    std::iota(order.begin(), order.end(), 0);
    for (int shuffle = 0; shuffle < 20; ++shuffle) {
      StepSums sums(leaves);
      for (const std::uint32_t leaf : order) {
        EXPECT_FALSE(sums.is_complete());
        EXPECT_FALSE(sums.has(leaf));
        sums.add_leaf(leaf, leaf_of(leaf));
        EXPECT_TRUE(sums.has(leaf));
      }
      ASSERT_TRUE(sums.is_complete());
      ASSERT_EQ(sums.sums(), expected) << leaves << " leaves";
      std::ranges::shuffle(order, random);
    }
  }
}

}  // namespace
}  // namespace regroup::collective::ps::testing::step_sums
