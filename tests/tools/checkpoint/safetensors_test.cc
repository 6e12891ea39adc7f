// Safetensors files that must be refused, as the reference implementation does.
#include "tools/checkpoint/safetensors.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstring>

namespace regroup::checkpoint_tool {
namespace {

using testing::HasSubstr;

base::Result<std::vector<checkpoint::CheckpointPiece>> read(const std::string& header,
                                                            const std::string& data = {}) {
  static std::string file;  // the pieces point into it
  const std::uint64_t length = header.size();
  file.assign(reinterpret_cast<const char*>(&length), sizeof length);
  file += header + data;
  return read_safetensors(std::as_bytes(std::span(file)), "a.safetensors");
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const auto pieces = read(
      R"({"__metadata__": {"step": "3"},
          "a": {"dtype": "U8", "shape": [2], "data_offsets": [4, 6]},
          "b": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}})",
      "123456");
  ASSERT_TRUE(pieces.ok()) << pieces.status().message();
  ASSERT_EQ(pieces->size(), 2);
  EXPECT_EQ((*pieces)[0].name, "b");
  EXPECT_EQ((*pieces)[1].name, "a");
  EXPECT_EQ(std::memcmp((*pieces)[1].bytes.data(), "56", 2), 0);
}

constexpr struct {
  const char *header, *data, *why;
} kRefused[] = {
    {R"({"w": {"dtype": "F32", "shape": [4611686018427387904], "data_offsets": [0, 0]}})", "",
     "the shape does not match"},
    {R"({"w": {"dtype": "U8", "shape": [-1, 2], "data_offsets": [0, 2]}})", "12",
     "shape: expected a list"},
    {R"({"w": {"dtype": "U8", "shape": [2.0], "data_offsets": [0, 2]}})", "12",
     "shape: expected a list"},
    {R"({"w": {"dtype": "U8", "data_offsets": [0, 1]}})", "1", "shape: expected a list"},
    {R"({"w": {"dtype": "U8", "shape": [2], "data_offsets": [0, "1", 2]}})", "12",
     "data_offsets: expected two whole"},
    {R"({"w": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}})", "12",
     "at most 2, the bytes of tensors"},
    {R"({"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
         "w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})",
     "1", "listed twice"},
    {R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
         "b": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}})",
     "123", "bytes of tensor b begin at 1, expected 2"},
    {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})", "12",
     "begin at 1, expected 0"},
    {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", "12",
     "1 bytes after the last tensor"},
    {R"({"w": {"dtype": "U8", "shape": [9223372036854775808, 2, 0], "data_offsets": [0, 0]}})", "",
     "the shape does not match"},
    {R"({"w": {"dtype": "U8", "shape": [0, 9223372036854775808], "data_offsets": [0, 0]}})", "",
     "the shape does not match"},
    {R"({"w": ["U8", [0], [0, 0]]})", "", "tensor w: a list instead of a description"},
    {R"({"w": []})", "", "tensor w: a list instead of a description"},
    {"[]", "", "expected a JSON object"},
    {R"({"w": [[[[[[[[[[]]]]]]]]]]})", "", "tensor w: a list instead of a description"},
    {R"({"w": [1], "x": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}})", "",
     "tensor w: a list instead of a description"},
    {R"({"w": [{}], "x": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}})", "",
     "tensor w: a list instead of a description"},
    {R"({"w" 5})", "", "unexpected byte at offset 5"},
};

TEST(Safetensors, RefusesWhatTheFormatForbids) {
  for (const auto& row : kRefused) {
    const auto pieces = read(row.header, row.data);
    EXPECT_EQ(pieces.code(), base::Code::kInvalidArgument) << row.header;
    EXPECT_THAT(pieces.status().message(), HasSubstr(row.why)) << row.header;
  }
}

// The reference implementation ignores fields that it does not know, however deep they are within
// its limit.
TEST(Safetensors, IgnoresNestedFieldsThatTheFormatDoesNotName) {
  const auto with = [](std::size_t deep) {
    return R"({"w": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0], "more": )" +
           std::string(deep, '[') + std::string(deep, ']') + "}}";
  };
  for (const std::size_t deep : {3, 10, 125}) EXPECT_TRUE(read(with(deep)).ok()) << deep;
  EXPECT_THAT(read(with(126)).status().message(),
              HasSubstr("nested 128 levels deep, expected at most 127"));
}

// Each name was compared with all before it, and each tensor looked at after each: 5 MB took
// minutes.
TEST(Safetensors, ReadsManyTensorsQuickly) {
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i)
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
              R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  const auto begin = std::chrono::steady_clock::now();
  const auto pieces = read(header + "}");
  ASSERT_TRUE(pieces.ok()) << pieces.status().message();
  EXPECT_EQ(pieces->size(), 100'000);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(Safetensors, KeepsTheOrderOfTensorsWithoutElements) {
  const auto pieces = read(
      R"({"z": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]},
          "b": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
          "y": {"dtype": "U8", "shape": [0], "data_offsets": [1, 1]},
          "a": {"dtype": "U8", "shape": [0], "data_offsets": [1, 1]}})",
      "1");
  ASSERT_TRUE(pieces.ok()) << pieces.status().message();
  std::string names;
  for (const auto& piece : *pieces) names += piece.name;
  EXPECT_EQ(names, "zbya");
}

// Each name was compared with all before it: 40 s.
TEST(Safetensors, WritesManyTensorsQuickly) {
  checkpoint::Manifest manifest;
  for (int i = 0; i < 100'000; ++i)
    manifest.tensors.push_back({"layer." + std::to_string(i), "uint8", {0}, {}});
  const auto begin = std::chrono::steady_clock::now();
  const auto header = safetensors_header(manifest);
  ASSERT_TRUE(header.ok()) << header.status().message();
  EXPECT_EQ(read_safetensors(std::as_bytes(std::span(*header)), "a.safetensors")->size(), 100'000);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

}  // namespace
}  // namespace regroup::checkpoint_tool
