// Byte order marks and line ends that editors write, and files that are not text.
#include "base/plain_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup::base {
namespace {

using std::string_literals::operator""s;
using testing::HasSubstr;

std::string of(std::string_view text) {
  auto plain = plain_text(text, "f");
  return plain.ok() ? *plain : "refused: " + plain.status().message();
}

TEST(PlainText, LeavesPlainTextAsItIs) {
  for (const std::string text : {"", "a", "a\n", "a\n\n b\t\xC3\xA9\n", "a \x1A b\n"})
    EXPECT_EQ(of(text), text);
}

TEST(PlainText, DropsWhatEditorsLeave) {
  EXPECT_EQ(of("\xEF\xBB\xBFhA slots=1\n"), "hA slots=1\n");
  EXPECT_EQ(of("\xEF\xBB\xBFhA\n\xEF\xBB\xBFhB\n"), "hA\nhB\n");  // two files joined
  EXPECT_EQ(of("a\xEF\xBB\xBF\n"), "a\xEF\xBB\xBF\n");
  EXPECT_EQ(of("hA\r\nhB\r\n\x1A"), "hA\nhB\n");
  EXPECT_EQ(of("hA\rhB\r"), "hA\nhB\n");
  EXPECT_EQ(of("a\r\r\n\nb"), "a\n\n\nb");
}

TEST(PlainText, RefusesOtherEncodingsByName) {
  EXPECT_THAT(of("\xFF\xFEh\0A\0"s), HasSubstr("f: it is UTF-16, expected UTF-8"));
  EXPECT_THAT(of("\xFE\xFF\0h\0A"s), HasSubstr("f: it is UTF-16, expected UTF-8"));
  EXPECT_THAT(of("h\0A\0"s), HasSubstr("f: byte 2 is NUL, expected text in UTF-8"));
}

}  // namespace
}  // namespace regroup::base
