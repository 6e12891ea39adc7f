// Plans for all of 1..16 to 1..16 owners: every element once, from where it is.
#include "checkpoint/reshard.h"

#include <gtest/gtest.h>

#include <map>

namespace regroup::checkpoint {
namespace {

Layout rows_over(const std::vector<Shape>& shapes, std::uint32_t owners) {
  Layout out;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    TensorLayout tensor{"t" + std::to_string(i), "float32", shapes[i], {}};
    const bool scalar = shapes[i].empty();
    for (std::uint32_t owner = 0; owner < (scalar ? 1 : owners); ++owner)
      tensor.pieces.push_back({owner, share_of_rows(shapes[i], owner, owners)});
    out.push_back(tensor);
  }
  return out;
}

TEST(Reshard, CopiesEveryElementOnceForAnyNumberOfOwners) {
  const std::vector<Shape> shapes = {{7, 3}, {16}, {1, 5}, {}, {0, 4}, {33, 2}};
  for (std::uint32_t n = 1; n <= 16; ++n) {
    for (std::uint32_t m = 1; m <= 16; ++m) {
      const Layout from = rows_over(shapes, n), to = rows_over(shapes, m);
      const auto copies = plan(from, to);
      ASSERT_TRUE(copies.ok()) << copies.status().message();
      std::map<std::pair<std::size_t, std::uint64_t>, int> seen;  // (tensor, row): times
      for (const Copy& copy : *copies) {
        ASSERT_TRUE(intersection(from[copy.tensor].pieces[copy.from].box, copy.box) == copy.box);
        ASSERT_TRUE(intersection(to[copy.tensor].pieces[copy.to].box, copy.box) == copy.box);
        if (copy.box.start.empty()) ++seen[{copy.tensor, 0}];
        for (std::uint64_t row = 0; !copy.box.start.empty() && row < copy.box.count[0]; ++row)
          ++seen[{copy.tensor, copy.box.start[0] + row}];
      }
      std::size_t rows = 0;
      for (const Shape& shape : shapes) rows += shape.empty() ? 1 : shape[0];
      ASSERT_EQ(seen.size(), rows);
      for (const auto& [at, times] : seen) ASSERT_EQ(times, 1);
    }
  }
}

TEST(Reshard, CopiesBetweenPiecesOfOtherDimensionsAndRefusesGaps) {
  Layout from = {{"w", "bfloat16", {4, 6}, {{0, {{0, 0}, {4, 2}}}, {1, {{0, 2}, {4, 4}}}}}};
  const Layout to = {{"w", "bfloat16", {4, 6}, {{0, {{0, 0}, {1, 6}}}, {1, {{1, 0}, {3, 6}}}}}};
  const auto copies = plan(from, to);
  ASSERT_TRUE(copies.ok());
  EXPECT_EQ(copies->size(), 4U);
  from[0].pieces.pop_back();
  EXPECT_EQ(plan(from, to).code(), base::Code::kInvalidArgument);
}

TEST(Reshard, NamesPiecesThatDoNotFit) {
  const Layout from = rows_over({{4}}, 2);
  const auto refused = [&](const TensorLayout& wanted) {
    return plan(from, {wanted}).status().message();
  };
  EXPECT_NE(refused({"x", "float32", {4}, {}}).find("tensor x: missing"), std::string::npos);
  EXPECT_NE(refused({"t0", "float64", {4}, {}}).find("got type float32, expected float64"),
            std::string::npos);
  EXPECT_NE(refused({"t0", "float32", {5}, {}}).find("shape"), std::string::npos);
  EXPECT_NE(refused({"t0", "float32", {4}, {{0, {{3}, {2}}}}}).find("beyond"), std::string::npos);
}

TEST(Reshard, SharesOfRowsAreUnevenByOneAtMost) {
  EXPECT_EQ(share_of_rows({7, 2}, 0, 3), (Box{{0, 0}, {3, 2}}));
  EXPECT_EQ(share_of_rows({7, 2}, 2, 3), (Box{{5, 0}, {2, 2}}));
  EXPECT_EQ(share_of_rows({1}, 3, 4), (Box{{1}, {0}}));
}

}  // namespace
}  // namespace regroup::checkpoint
