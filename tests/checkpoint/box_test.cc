// Boxes against element-by-element counting.
#include "checkpoint/box.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace regroup::checkpoint {
namespace {

using Elements = std::vector<std::uint64_t>;

TEST(Box, VolumeIsUnknownIfItOverflows) {
  EXPECT_EQ(volume_of({}), 1);
  EXPECT_EQ(volume_of({3, 0, 5}), 0);
  EXPECT_EQ(volume_of({1ULL << 40, 1ULL << 40}), std::nullopt);
  EXPECT_EQ(volume_of({1ULL << 63, 1ULL << 63, 0}), 0);
}

TEST(Box, KnowsWhetherItLiesWithinAnother) {
  EXPECT_TRUE(lies_within({{1}, {2}}, {3}));
  EXPECT_FALSE(lies_within({{2}, {2}}, {3}));
  EXPECT_FALSE(lies_within({{UINT64_MAX}, {2}}, {3}));  // no sum overflows
  EXPECT_FALSE(lies_within({{0}, {1}}, {1, 1}));
  EXPECT_TRUE(lies_within({{}, {}}, {}));
}

// Elements of `from`, numbered as in the tensor, brought to `to` by runs_of().
TEST(Box, RunsBringEveryElementToItsPlace) {
  std::mt19937 random(1);
  const Shape shape = {5, 4, 6};
  const auto some_box = [&] {
    Box box;
    for (const std::uint64_t n : shape) {
      const std::uint64_t start = random() % n;
      box.start.push_back(start);
      box.count.push_back(1 + random() % (n - start));
    }
    return box;
  };
  const auto number = [](const Box& box) {  // of each element of the box, in the tensor
    Elements out;
    for (std::uint64_t i = 0; i < box.count[0]; ++i)
      for (std::uint64_t j = 0; j < box.count[1]; ++j)
        for (std::uint64_t k = 0; k < box.count[2]; ++k)
          out.push_back(((box.start[0] + i) * 4 + box.start[1] + j) * 6 + box.start[2] + k);
    return out;
  };
  for (int round = 0; round < 2000; ++round) {
    const Box from = some_box(), to = some_box();
    const auto part = intersection(from, to);
    Elements memory(*volume_of(to.count), UINT64_MAX);
    const Elements source = number(from), wanted = number(to);
    if (part) {
      for (const checkpoint::Run& run : runs_of(*part, from, to))
        for (std::uint64_t i = 0; i < run.elements; ++i) memory[run.to + i] = source[run.from + i];
    }
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const bool there = std::ranges::find(source, wanted[i]) != source.end();
      ASSERT_EQ(memory[i], there ? wanted[i] : UINT64_MAX)
          << to_string(from) << " to " << to_string(to);
    }
  }
}

TEST(Box, RunsAreAsLongAsTheyCanBe) {
  const Box all = whole({4, 5, 6});
  EXPECT_EQ(runs_of(all, all, all).size(), 1U);
  EXPECT_EQ(runs_of({{1, 0, 0}, {2, 5, 6}}, all, {{1, 0, 0}, {3, 5, 6}}).size(), 1U);
  EXPECT_EQ(runs_of({{0, 1, 0}, {4, 2, 6}}, all, all).size(), 4U);
}

TEST(Box, RecognisesTilings) {
  const Shape shape = {4, 3};
  const auto why = [&](std::vector<Box> boxes) { return tiling_error(shape, boxes); };
  EXPECT_FALSE(why({whole(shape)}));
  EXPECT_FALSE(why({{{0, 0}, {4, 1}}, {{0, 1}, {1, 2}}, {{1, 1}, {3, 2}}}));
  EXPECT_FALSE(why({{{0, 0}, {0, 3}}, {{0, 0}, {4, 3}}}));  // an empty piece
  EXPECT_TRUE(why({{{0, 0}, {3, 3}}}));
  // As many elements as the tensor has, two twice.
  EXPECT_TRUE(why({{{0, 0}, {2, 3}}, {{1, 0}, {2, 3}}}));
  EXPECT_TRUE(why({whole(shape), whole(shape)}));
  EXPECT_TRUE(why({{{0, 0}, {5, 3}}}));
  EXPECT_FALSE(tiling_error({}, std::vector<Box>{{{}, {}}}));
  EXPECT_TRUE(tiling_error({}, std::vector<Box>{{{}, {}}, {{}, {}}}));
  EXPECT_TRUE(tiling_error({}, {}));
  EXPECT_FALSE(tiling_error({0}, {}));
}

}  // namespace
}  // namespace regroup::checkpoint
