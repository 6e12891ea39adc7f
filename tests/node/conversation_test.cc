// Two sides and, between them, ways that are lost with what they carry.
#include "launcher/node/conversation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace regroup::node {
namespace {

Conversation::Bytes bytes(std::size_t size) { return std::make_shared<std::vector<std::byte>>(size); }

TEST(Conversation, TakesTheNextAndNothingElse) {
  Conversation side;
  EXPECT_FALSE(side.take(2, 1)) << "1 is missing";
  EXPECT_TRUE(side.take(1, 1));
  EXPECT_FALSE(side.take(1, 1)) << "once";
  EXPECT_FALSE(side.take(0, 1));
  EXPECT_TRUE(side.take(2, 1));
  EXPECT_EQ(side.taken(), 2U);
}

TEST(Conversation, KeepsWhatMayNotHaveBeenHeard) {
  Conversation side;
  for (int i = 0; i < 5; ++i) (void)side.say(bytes(10), i == 3);
  side.heard(2);
  ASSERT_EQ(side.unheard().size(), 3U);
  EXPECT_EQ(side.unheard().front().number, 3U);
  EXPECT_TRUE(side.unheard()[1].answered);
  side.heard(1);  // late
  EXPECT_EQ(side.unheard().size(), 3U);
  side.heard(99);  // who says that has not
  EXPECT_TRUE(side.unheard().empty());
  EXPECT_EQ(side.say(bytes(1), false), 6U);
}

TEST(Conversation, TellsNowAndThenWhatItHasHeard) {
  Conversation side;
  for (std::uint64_t n = 1; n < Conversation::kTellMessages; ++n) {
    EXPECT_TRUE(side.take(n, 1));
    EXPECT_FALSE(side.due());
  }
  EXPECT_TRUE(side.take(Conversation::kTellMessages, 1));
  EXPECT_EQ(side.due(), Conversation::kTellMessages);
  EXPECT_FALSE(side.due()) << "once";
  EXPECT_TRUE(side.take(Conversation::kTellMessages + 1, Conversation::kTellBytes));
  EXPECT_EQ(side.due(), Conversation::kTellMessages + 1);
}

TEST(Conversation, OneWhoNeverSaysWhatItHearsIsNoticed) {
  Conversation side;
  const auto large = bytes(Conversation::kMostKept / 4);
  for (int i = 0; i < 4; ++i) (void)side.say(large, false);
  EXPECT_FALSE(side.overfull());
  (void)side.say(bytes(1), false);
  EXPECT_TRUE(side.overfull());
  side.heard(1);
  EXPECT_FALSE(side.overfull());
}

// Ways break at any moment, with all that is on them in both directions; what was said is heard once and in
// order all the same.
TEST(Conversation, LosesNothingAndDoublesNothingWhateverBreaks) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    Conversation sides[2];
    std::deque<std::uint64_t> ways[2], acks[2];  // to side 0, to side 1
    std::vector<std::uint64_t> got[2];
    std::uint64_t said[2] = {0, 0};
    const auto hear = [&](int side) {
      if (ways[side].empty()) return;
      const std::uint64_t number = ways[side].front();
      ways[side].pop_front();
      if (!sides[side].take(number, 1)) return;
      got[side].push_back(number);
      if (const auto due = sides[side].due()) acks[1 - side].push_back(*due);
    };
    const auto again = [&] {  // a new way: each says what it has heard, and all else again
      for (const int side : {0, 1}) ways[side].clear(), acks[side].clear();
      for (const int side : {0, 1}) {
        sides[side].heard(sides[1 - side].taken());
        for (const auto& kept : sides[side].unheard()) ways[1 - side].push_back(kept.number);
      }
    };
    for (int move = 0; move < 2000; ++move) {
      const int side = static_cast<int>(random() % 2);
      switch (random() % 20) {
        case 0:
          if (random() % 10 == 0) again();
          break;
        case 1:
        case 2:
          if (!acks[side].empty()) sides[side].heard(acks[side].front()), acks[side].pop_front();
          break;
        default:
          if (random() % 2 == 0) {
            said[side] = sides[side].say(bytes(1), false);
            ways[1 - side].push_back(said[side]);
          } else {
            hear(side);
          }
      }
    }
    again();
    for (const int side : {0, 1}) {
      while (!ways[side].empty()) hear(side);
      ASSERT_EQ(got[side].size(), said[1 - side]) << "seed " << seed;
      ASSERT_TRUE(std::ranges::is_sorted(got[side]));
    }
  }
}

}  // namespace
}  // namespace regroup::node
