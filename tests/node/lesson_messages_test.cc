// What agents say to each other of a lesson survives the wire, and nothing else is taken.
#include "launcher/node/lesson_messages.h"

#include <gtest/gtest.h>

#include "launcher/node/wire.h"

namespace regroup::node {
namespace {

template <class Body>
Body through(const Body& body) {
  const auto message = decode_lesson(encode(LessonMessage(body)));
  EXPECT_TRUE(message.ok()) << message.status().to_string();
  return std::get<Body>(*message);
}

TEST(LessonMessages, EachKeepsWhatItSays) {
  const auto request = through(LessonRequest{4097, 1, 3, true});
  EXPECT_EQ(request.lesson, 4097U);
  EXPECT_EQ(request.part, 1U);
  EXPECT_EQ(request.parts, 3U);
  EXPECT_TRUE(request.results);
  const auto length = through(LessonLength{1ULL << 40, 17});
  EXPECT_EQ(length.bytes, 1ULL << 40);
  EXPECT_EQ(length.newest, 17U);
  const auto chunk = through(LessonChunk{17, 3, true, 0xdeadbeef, {std::byte{1}, std::byte{2}}});
  EXPECT_EQ(chunk.step, 17U);
  EXPECT_EQ(chunk.chunk, 3U);
  EXPECT_TRUE(chunk.last);
  EXPECT_EQ(chunk.crc, 0xdeadbeef);
  EXPECT_EQ(chunk.bytes, (std::vector{std::byte{1}, std::byte{2}}));
  EXPECT_EQ(through(LessonError{"why"}).why, "why");
}

TEST(LessonMessages, SenselessOnesAreRefused) {
  const auto code = [](const LessonMessage& message) { return decode_lesson(encode(message)).code(); };
  EXPECT_EQ(code(LessonRequest{1, 0, 0, true}), core::Code::kDataLoss);
  EXPECT_EQ(code(LessonRequest{1, 3, 3, true}), core::Code::kDataLoss);
  EXPECT_EQ(code(LessonChunk{1, 0, true, 0, std::vector<std::byte>(core::kSnapshotChunk + 1)}),
            core::Code::kDataLoss);
}

TEST(LessonMessages, NothingElseIsTaken) {
  const std::vector<std::byte> whole = encode(LessonMessage(LessonError{"why"}));
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(decode_lesson(std::span(whole).first(size)).ok()) << size;
  EXPECT_FALSE(decode_lesson(encode(Message(UserMessage{"of another kind"}))).ok());
}

}  // namespace
}  // namespace regroup::node
