// Lines out of arbitrary pieces.
#include "launcher/process/line_cutter.h"

#include <gtest/gtest.h>

namespace regroup::process {
namespace {

std::string feed(LineCutter& cutter, const std::string& bytes) {
  const std::string all = cutter.rest() + bytes;
  return std::string(cutter.cut(all));
}

std::string prefixed(const std::string& lines, const std::string& prefix) {
  std::string out;
  append_prefixed(out, lines, prefix);
  return out;
}

TEST(LineCutter, KeepsAPartialLineUntilItsEnd) {
  LineCutter cutter;
  EXPECT_EQ(feed(cutter, "a"), "");
  EXPECT_EQ(feed(cutter, "b\nc\nd"), "ab\nc\n");
  EXPECT_EQ(feed(cutter, "\n"), "d\n");
  EXPECT_EQ(cutter.rest(), "");
}

TEST(LineCutter, KeepsThePartialLastLineAsTheRest) {
  LineCutter cutter;
  EXPECT_EQ(feed(cutter, "x\ny"), "x\n");
  EXPECT_EQ(cutter.rest(), "y");
}

TEST(LineCutter, EveryPieceSizeGivesTheSameBytes) {
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += std::string(static_cast<std::size_t>(i * 7 % 90), 'a' + i % 26) + "\n";
  for (std::size_t piece = 1; piece < 100; ++piece) {
    LineCutter cutter;
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      const std::string lines = feed(cutter, text.substr(at, piece));
      ASSERT_TRUE(lines.empty() || lines.back() == '\n');
      out += lines;
    }
    ASSERT_EQ(out + cutter.rest(), text) << piece;
  }
}

TEST(LineCutter, KeepsBytesThatAreNotText) {
  LineCutter cutter;
  const std::string text("a\0b\xff\n", 5);
  EXPECT_EQ(feed(cutter, text), text);
}

TEST(Prefix, StandsBeforeEachLine) {
  EXPECT_EQ(prefixed("x\n\nz\n", "p:"), "p:x\np:\np:z\n");
  EXPECT_EQ(prefixed("", "p:"), "");
}

TEST(Prefix, MakesAPartialLineWhole) { EXPECT_EQ(prefixed("x\ny", "p:"), "p:x\np:y\n"); }

TEST(Prefix, StandsOnceBeforeALongLine) {
  const std::string line(1 << 20, 'x');
  EXPECT_EQ(prefixed(line + "\n", "p:"), "p:" + line + "\n");
  EXPECT_EQ(prefixed(line, "p:"), "p:" + line + "\n");
}

}  // namespace
}  // namespace regroup::process
