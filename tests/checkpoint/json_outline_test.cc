// The depth of JSON texts and the keys of their outermost object.
#include "checkpoint/json_outline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "base/crc32c.h"
#include "checkpoint/manifest.h"

namespace regroup::checkpoint {
namespace {

constexpr struct {
  const char* text;
  std::size_t depth, keys;
} kTexts[] = {{"", 0, 0},
              {"7", 0, 0},
              {"{}", 1, 0},
              {R"({"a": 1, "b": [{"c": 2}]})", 3, 2},
              {R"({"a": 1, "a": 2})", 1, 2},
              {R"({"[[{:": ":\"[{"})", 1, 1},
              {R"({"\\": [], "\\\"": 1})", 2, 2},
              {"]]}[[", 2, 0},
              {R"("cut off \)", 0, 0}};

TEST(JsonOutline, CountsOutsideStrings) {
  for (const auto& row : kTexts) {
    EXPECT_EQ(outline_of_json(row.text).depth, row.depth) << row.text;
    EXPECT_EQ(outline_of_json(row.text).keys, row.keys) << row.text;
  }
}

// 100,000 tensors took minutes: the parser went through all tensors again after each.
TEST(JsonOutline, AManifestOfManyTensorsIsParsedInLinearTime) {
  Manifest manifest;
  for (int i = 0; i < 100'000; ++i)
    manifest.tensors.push_back({std::to_string(i), "uint8", {0}, {}});
  const std::string text = encode(manifest);
  const auto begin = std::chrono::steady_clock::now();
  const auto back = parse_manifest(std::as_bytes(std::span(text)), "MANIFEST");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->tensors.size(), 100'000);
}

}  // namespace
}  // namespace regroup::checkpoint
