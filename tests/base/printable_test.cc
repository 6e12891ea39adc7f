// Names that other users chose are safe to print to a terminal.
#include "base/printable.h"

#include <gtest/gtest.h>

namespace regroup::base {
namespace {

constexpr struct {
  std::string_view text, shown;
} kShown[] = {
    {"layer.0/weight ok", "layer.0/weight ok"},
    {"\u00e9 \u65e5\u672c \U0001f642", "\u00e9 \u65e5\u672c \U0001f642"},
    {"red\x1b[31m", "red\\x1b[31m"},
    {"two\nlines\tand\rback", "two\\nlines\\tand\\rback"},
    {std::string_view("a\0b", 3), "a\\x00b"},
    {"\x7f", "\\x7f"},
    {"\u009b1m", "\\xc2\\x9b1m"},         // CSI of C1
    {"\u202etxt", "\\xe2\\x80\\xaetxt"},  // right to left
    {"\u2028", "\\xe2\\x80\\xa8"},
    {"caf\xe9", "caf\\xe9"},
    {"\xc0\x80\xed\xa0\x80", "\\xc0\\x80\\xed\\xa0\\x80"},
    {"\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80"},
    {"back\\slash", "back\\slash"},
    {"", ""},
};

TEST(Printable, EscapesWhatATerminalObeys) {
  for (const auto& row : kShown) {
    EXPECT_EQ(escaped(row.text), row.shown);
    EXPECT_EQ(escaped(escaped(row.text)), row.shown);
  }
}

TEST(Printable, KeepsTheLinesOfAMessage) {
  EXPECT_EQ(escaped_lines("one\n\ttwo\x1b[31m\r\n"), "one\n\ttwo\\x1b[31m\\r\n");
}

TEST(Printable, CountsInTheSingularAndThePlural) {
  EXPECT_EQ(counted(0, "member"), "0 members");
  EXPECT_EQ(counted(1, "member"), "1 member");
  EXPECT_EQ(counted(2, "member"), "2 members");
  EXPECT_EQ(counted(1, "launch"), "1 launch");
  EXPECT_EQ(counted(3, "launch"), "3 launches");
  EXPECT_EQ(counted(5, "process"), "5 processes");
}

}  // namespace
}  // namespace regroup::base
