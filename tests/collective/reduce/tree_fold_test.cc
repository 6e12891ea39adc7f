// The fold of the tree alone: covers that are refused, numbers that are not ordinary, memory of any
// alignment.
#include "collective/reduce/tree_fold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "tests/collective/covers.h"

namespace regroup::collective::testing::tree_fold {
namespace {

using proto::Interval;

// More than two blocks of any type, and a rest.
std::size_t elements_of(Dtype dtype) { return 10'000 / size_of(dtype); }

TEST(Slices, CoverEverythingOnceInWholeCacheLines) {
  for (std::size_t bytes : {0, 4, 64, 68, 4096, 100'000}) {
    for (int count : {1, 2, 3, 7, 128}) {
      std::size_t at = 0;
      for (int i = 0; i < count; ++i) {
        const reduce::ByteRange range = reduce::slice_of(bytes, i, count);
        EXPECT_EQ(range.begin, at);
        EXPECT_TRUE(range.begin % 64 == 0 || range.begin == bytes);
        EXPECT_LE(range.begin, range.end);
        EXPECT_LE(range.end - range.begin, (bytes / 64 / static_cast<std::size_t>(count) + 2) * 64);
        at = range.end;
      }
      EXPECT_EQ(at, bytes);
    }
  }
}

TEST(TreeFold, RefusesAnInvalidCover) {
  const struct {
    std::vector<Interval> nodes;
    std::uint32_t leaves;
    bool good;
  } rows[] = {
      {{{0, 1}}, 1, true},
      {{{0, 4}}, 4, true},
      {{{2, 4}, {0, 1}, {1, 2}}, 4, true},
      {{{4, 5}, {0, 4}}, 5, true},
      {{{0, 2}, {2, 5}}, 5, false},          // [2,5) is no node of five leaves
      {{{1, 3}, {0, 1}, {3, 4}}, 4, false},  // nor [1,3) of four
      {{{0, 2}}, 4, false},                  // a hole at the end
      {{{2, 4}}, 4, false},                  // and at the begin
      {{{0, 1}, {2, 4}}, 4, false},          // and in the middle
      {{{0, 2}, {1, 2}, {2, 4}}, 4, false},  // twice
      {{{0, 2}, {0, 2}, {2, 4}}, 4, false},
      {{{0, 4}, {4, 5}}, 4, false},  // beyond
      {{{0, 8}}, 4, false},
      {{{0, 0}, {0, 4}}, 4, false},  // empty
      {{}, 4, false},
      {{}, 0, false},
      {{{0, proto::kMaxShards + 1}}, proto::kMaxShards + 1, false},
  };
  for (const auto& row : rows) {
    const auto sum = reduce::TreeFold::compile(row.nodes, row.leaves);
    EXPECT_EQ(sum.code(), row.good ? base::Code::kOk : base::Code::kInvalidArgument)
        << row.leaves << " leaves, " << row.nodes.size() << " nodes";
  }
  EXPECT_EQ(reduce::TreeFold::compile(std::vector<Interval>{{0, 2}, {2, 5}}, 5).status().message(),
            "sum: these are not disjoint canonical nodes that cover 5 leaves: [0,2) [2,5)");
}

TEST(TreeFold, SumsManyLeaves) {
  std::vector<Interval> nodes;
  std::vector<std::vector<std::byte>> leaves;
  std::vector<const std::byte*> inputs;
  for (std::uint32_t i = 0; i < proto::kMaxShards - 1; ++i) {
    nodes.push_back({i, i + 1});
    leaves.push_back(make_leaf(Dtype::kFloat64, 3, i));
  }
  for (const auto& leaf : leaves) inputs.push_back(leaf.data());
  auto sum = reduce::TreeFold::compile(nodes, proto::kMaxShards - 1);
  ASSERT_TRUE(sum.ok()) << sum.status().to_string();
  std::vector<std::byte> out(24);
  sum->run(inputs, {0, 24}, out.data(), Dtype::kFloat64, Op::kSum, reduce::Stores::kPlain);
  EXPECT_EQ(out, reference_sum(Dtype::kFloat64, leaves, {0, proto::kMaxShards - 1}));
}

// Inputs and output anywhere in memory, part of the range, both kinds of stores; nothing beside it
// is touched.
TEST(TreeFold, FoldsAnyRangeAtAnyAlignment) {
  std::mt19937_64 random(3);
  for (std::size_t round = 0; round < 900; ++round) {
    const Dtype dtype = kDtypes[round % std::size(kDtypes)];
    const std::size_t size = size_of(dtype);
    const std::size_t elements = elements_of(dtype);
    const auto count = static_cast<std::uint32_t>(1 + random() % 9);
    const auto nodes = random_cover_of(dtype, count, random);
    std::vector<std::vector<std::byte>> leaves;
    for (std::uint32_t i = 0; i < count; ++i)
      leaves.push_back(make_leaf(dtype, elements, random(), true));
    std::vector<std::vector<std::byte>> sums;
    std::vector<const std::byte*> inputs;
    for (Interval node : nodes) {
      const std::size_t skew = random() % 64;
      sums.push_back(reference_sum(dtype, leaves, node));
      sums.back().insert(sums.back().begin(), skew, std::byte{});
      inputs.push_back(sums.back().data() + skew);
    }
    const std::size_t begin = random() % elements * size;
    const reduce::ByteRange range{begin, begin + random() % (elements - begin / size + 1) * size};
    const std::size_t skew = round % 2 == 0 ? 0 : random() % 64;
    std::vector<std::byte> out(elements * size + 128, std::byte{0x5a});
    std::vector<std::byte> want = out;
    const auto all = reference_sum(dtype, leaves, {0, count});
    std::copy(all.begin() + static_cast<std::ptrdiff_t>(range.begin),
              all.begin() + static_cast<std::ptrdiff_t>(range.end),
              want.begin() + static_cast<std::ptrdiff_t>(skew));
    auto sum = reduce::TreeFold::compile(nodes, count);
    ASSERT_TRUE(sum.ok());
    sum->run(inputs, range, out.data() + skew, dtype, Op::kSum,
             random() % 3 == 0 ? reduce::Stores::kStream : reduce::Stores::kPlain);
    ASSERT_EQ(out, want) << "round " << round;
  }
}

TEST(TreeFold, FoldsAnyNumberOfLeavesOfAnyType) {
  std::mt19937_64 random(4);
  for (const Dtype dtype : kDtypes) {
    for (std::uint32_t count = 1; count <= 64; ++count) {
      std::vector<std::vector<std::byte>> leaves;
      const std::size_t elements = 1 + random() % 40;
      for (std::uint32_t i = 0; i < count; ++i)
        leaves.push_back(make_leaf(dtype, elements, random(), true));
      const auto want = reference_sum(dtype, leaves, {0, count});
      for (int turn = 0; turn < 3; ++turn) {
        const std::vector<Sealed> parts = seal(dtype, leaves, random);
        std::vector<Interval> nodes;
        std::vector<const std::byte*> inputs;
        for (const Sealed& part : parts) {
          nodes.push_back(part.leaves);
          inputs.push_back(part.sum.data());
        }
        const auto fold = reduce::TreeFold::compile(nodes, count);
        ASSERT_TRUE(fold.ok()) << fold.status().to_string();
        std::vector<std::byte> out(want.size());
        fold->run(inputs, {0, out.size()}, out.data(), dtype, Op::kSum, reduce::Stores::kPlain);
        ASSERT_EQ(out, want) << count << " leaves of " << name_of(dtype);
      }
    }
  }
}

template <class T>
T sum_of_two(T a, T b, Dtype dtype) {
  const std::vector<Interval> nodes{{0, 1}, {1, 2}};
  const std::byte* inputs[] = {reinterpret_cast<std::byte*>(&a), reinterpret_cast<std::byte*>(&b)};
  T out{};
  reduce::TreeFold::compile(nodes, 2)->run(inputs, {0, sizeof(T)},
                                           reinterpret_cast<std::byte*>(&out), dtype, Op::kSum,
                                           reduce::Stores::kPlain);
  return out;
}

TEST(TreeFold, FloatsFollowTheStandard) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  EXPECT_TRUE(std::isnan(sum_of_two(kInf, -kInf, Dtype::kFloat32)));
  EXPECT_TRUE(std::isnan(sum_of_two(std::nanf(""), 1.0F, Dtype::kFloat32)));
  EXPECT_TRUE(std::isnan(sum_of_two(1.0F, std::nanf(""), Dtype::kFloat32)));
  EXPECT_EQ(sum_of_two(kInf, 1.0F, Dtype::kFloat32), kInf);
  EXPECT_EQ(sum_of_two(kTiny, kTiny, Dtype::kFloat32), 2 * kTiny);  // not flushed to zero
  EXPECT_TRUE(std::signbit(sum_of_two(-0.0F, -0.0F, Dtype::kFloat32)));
  EXPECT_FALSE(std::signbit(sum_of_two(-0.0F, 0.0F, Dtype::kFloat32)));
  EXPECT_EQ(sum_of_two(1.0F, 0x1p-24F, Dtype::kFloat32), 1.0F);  // rounded to float, to even
  EXPECT_EQ(sum_of_two(1.0, 0x1p-52, Dtype::kFloat64), 1.0 + 0x1p-52);
}

TEST(TreeFold, IntegersWrap) {
  EXPECT_EQ(sum_of_two(INT32_MAX, 1, Dtype::kInt32), INT32_MIN);
  EXPECT_EQ(sum_of_two(std::int64_t{INT64_MIN}, std::int64_t{-1}, Dtype::kInt64), INT64_MAX);
  EXPECT_EQ(sum_of_two(std::int64_t{INT32_MAX}, std::int64_t{1}, Dtype::kInt64), 0x80000000LL);
}

}  // namespace
}  // namespace regroup::collective::testing::tree_fold
