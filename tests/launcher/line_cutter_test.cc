// Lines out of arbitrary pieces.
#include "launcher/supervise/line_cutter.h"

#include <gtest/gtest.h>

namespace regroup::launcher {
namespace {

TEST(LineCutter, KeepsAPartialLineUntilItsEnd) {
  LineCutter cutter;
  EXPECT_EQ(cutter.feed("a"), "");
  EXPECT_EQ(cutter.feed("b\nc\nd"), "ab\nc\n");
  EXPECT_EQ(cutter.feed("\n"), "d\n");
  EXPECT_EQ(cutter.finish(), "");
}

TEST(LineCutter, GivesThePartialLastLineAtTheEnd) {
  LineCutter plain;
  EXPECT_EQ(plain.feed("x\ny"), "x\n");
  EXPECT_EQ(plain.finish(), "y");
  EXPECT_EQ(plain.finish(), "");
  LineCutter tagged("[1,0]<stdout>:");
  EXPECT_EQ(tagged.feed("x\ny"), "[1,0]<stdout>:x\n");
  EXPECT_EQ(tagged.finish(), "[1,0]<stdout>:y\n");
}

TEST(LineCutter, EveryPieceSizeGivesTheSameBytes) {
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += std::string(static_cast<std::size_t>(i * 7 % 90), 'a' + i % 26) + "\n";
  for (std::size_t piece = 1; piece < 100; ++piece) {
    LineCutter cutter;
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      const std::string lines = cutter.feed(std::string_view(text).substr(at, piece));
      ASSERT_TRUE(lines.empty() || lines.back() == '\n');
      out += lines;
    }
    ASSERT_EQ(out + cutter.finish(), text) << piece;
  }
}

TEST(LineCutter, CutsAnOverlongLineWithoutChangingItsBytes) {
  const std::string text = std::string(3 * kLongestLine + 5, 'x') + "\nend\n";
  LineCutter cutter;
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += 1000)
    out += cutter.feed(std::string_view(text).substr(at, 1000));
  EXPECT_EQ(out + cutter.finish(), text);
}

TEST(LineCutter, PutsThePrefixBeforeEachPieceOfAnOverlongLine) {
  LineCutter cutter("p:");
  const std::string out = cutter.feed(std::string(kLongestLine + 1, 'x') + "\n");
  EXPECT_EQ(out, "p:" + std::string(kLongestLine, 'x') + "\np:x\n");
}

TEST(LineCutter, KeepsBytesThatAreNoText) {
  LineCutter cutter;
  const std::string text("a\0b\xff\n", 5);
  EXPECT_EQ(cutter.feed(text), text);
}

}  // namespace
}  // namespace regroup::launcher
