// Files of numpy.savez() of which no checkpoint can be made.
#include "tools/checkpoint/npz.h"

#include <gmock/gmock.h>

#include "tests/tools/checkpoint/archive.h"

namespace regroup::checkpoint_tool {
namespace {

using testing::HasSubstr;

base::Result<Arrays> read(const std::string& file) {
  return read_npz(std::as_bytes(std::span(file)), "a.npz");
}

TEST(Npz, ReadsArrays) {
  const std::string file = archive_of(
      {{"w.npy", array_of("<f4", "(2, 3)", 24)}, {"\u00e9.npy", array_of("|u1", "()", 1)}});
  const auto arrays = read(file);
  ASSERT_TRUE(arrays.ok()) << arrays.status().message();
  const auto& pieces = arrays->pieces;
  ASSERT_EQ(pieces.size(), 2);
  EXPECT_EQ(pieces[0].name, "w");
  EXPECT_EQ(pieces[0].shape, (checkpoint::Shape{2, 3}));
  EXPECT_EQ(pieces[1].name, "\u00e9");
  EXPECT_EQ(pieces[1].dtype, "uint8");
}

constexpr struct {
  const char *what, *descr, *shape;
  std::size_t bytes;
} kRefused[] = {
    {"2^62 elements of 4 bytes, which is 0 modulo 2^64", "<f4", "(4611686018427387904,)", 0},
    {"2^60 elements of 16 bytes, which is 0 modulo 2^64", "<c16", "(1152921504606846976,)", 0},
    {"a negative dimension", "<f4", "(-1,)", 0},
    {"too few bytes", "<f4", "(2,)", 7},
    {"a type of Python objects", "|O", "(1,)", 8},
    {"no element, and more bytes than 2^63 in a row", "<f4", "(4611686018427387904, 0)", 0},
    {"no element, and 2^66 rows", "|u1", "(4294967296, 4294967296, 4, 0)", 0},
    {"33 dimensions", "|u1", "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)",
     1},
};

TEST(Npz, RefusesArraysThatCannotBe) {
  for (const auto& row : kRefused) {
    const std::string file = archive_of({{"w.npy", array_of(row.descr, row.shape, row.bytes)}});
    EXPECT_EQ(read(file).code(), base::Code::kInvalidArgument) << row.what;
  }
}

// The manifest, which is JSON, would have had another name for it.
TEST(Npz, RefusesANameThatIsNotUtf8) {
  const std::string array = array_of("|u1", "(1,)", 1);
  for (const char* name :
       {"caf\x82.npy", "\xc3.npy", "\xed\xa0\x80", "\xc0\x80", "\xf5\x80\x80\x80"}) {
    const auto pieces = read(archive_of({{name, array}}));
    EXPECT_EQ(pieces.code(), base::Code::kInvalidArgument) << name;
    EXPECT_THAT(pieces.status().message(), HasSubstr("name is not UTF-8")) << name;
  }
}

TEST(Npz, RefusesTwoArraysOfOneName) {
  const std::string array = array_of("|u1", "(1,)", 1);
  const auto pieces = read(archive_of({{"w.npy", array}, {"w", array}}));
  EXPECT_EQ(pieces.code(), base::Code::kInvalidArgument);
  EXPECT_THAT(pieces.status().message(), HasSubstr("array w: listed twice"));
}

}  // namespace
}  // namespace regroup::checkpoint_tool
