// Two ends of a session over connections that break with the messages they carry.
#include "launcher/agent/reliable_session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace regroup::agent {
namespace {

ReliableSession::Bytes bytes(std::size_t size) {
  return std::make_shared<std::vector<std::byte>>(size);
}

TEST(ReliableSession, AcceptsTheNextNumberOnly) {
  ReliableSession side;
  EXPECT_FALSE(side.accept(2, 1)) << "1 is missing";
  EXPECT_TRUE(side.accept(1, 1));
  EXPECT_FALSE(side.accept(1, 1)) << "once";
  EXPECT_FALSE(side.accept(0, 1));
  EXPECT_TRUE(side.accept(2, 1));
  EXPECT_EQ(side.accepted(), 2U);
}

TEST(ReliableSession, KeepsUnacknowledgedMessages) {
  ReliableSession side;
  for (int i = 0; i < 5; ++i) (void)side.enqueue(bytes(10), i == 3);
  side.acknowledge(2);
  ASSERT_EQ(side.unacked().size(), 3U);
  EXPECT_EQ(side.unacked().front().number, 3U);
  EXPECT_TRUE(side.unacked()[1].answered);
  side.acknowledge(1);  // late
  EXPECT_EQ(side.unacked().size(), 3U);
  side.acknowledge(99);  // beyond what was sent
  EXPECT_TRUE(side.unacked().empty());
  EXPECT_EQ(side.enqueue(bytes(1), false), 6U);
}

TEST(ReliableSession, AcknowledgesAfterAFewMessagesOrBytes) {
  ReliableSession side;
  for (std::uint64_t n = 1; n < ReliableSession::kAckMessages; ++n) {
    EXPECT_TRUE(side.accept(n, 1));
    EXPECT_FALSE(side.ack_due());
  }
  EXPECT_TRUE(side.accept(ReliableSession::kAckMessages, 1));
  EXPECT_EQ(side.ack_due(), ReliableSession::kAckMessages);
  EXPECT_FALSE(side.ack_due()) << "once";
  EXPECT_TRUE(side.accept(ReliableSession::kAckMessages + 1, ReliableSession::kAckBytes));
  EXPECT_EQ(side.ack_due(), ReliableSession::kAckMessages + 1);
}

TEST(ReliableSession, APeerThatNeverAcknowledgesIsNoticed) {
  ReliableSession side;
  const auto large = bytes(ReliableSession::kMaxUnackedBytes / 4);
  for (int i = 0; i < 4; ++i) (void)side.enqueue(large, false);
  EXPECT_FALSE(side.overfull());
  (void)side.enqueue(bytes(1), false);
  EXPECT_TRUE(side.overfull());
  side.acknowledge(1);
  EXPECT_FALSE(side.overfull());
}

// Connections break at any moment and lose what they carry in both directions; every message is
// still accepted once and in order.
TEST(ReliableSession, NoMessageIsLostOrDuplicatedWhateverBreaks) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    ReliableSession sides[2];
    std::deque<std::uint64_t> in_flight[2], acks[2];  // to side 0, to side 1
    std::vector<std::uint64_t> got[2];
    std::uint64_t sent[2] = {0, 0};
    const auto deliver = [&](int side) {
      if (in_flight[side].empty()) return;
      const std::uint64_t number = in_flight[side].front();
      in_flight[side].pop_front();
      if (!sides[side].accept(number, 1)) return;
      got[side].push_back(number);
      if (const auto due = sides[side].ack_due()) acks[1 - side].push_back(*due);
    };
    const auto reconnect =
        [&] {  // a new connection: each side acknowledges, and retransmits the rest
          for (const int side : {0, 1}) in_flight[side].clear(), acks[side].clear();
          for (const int side : {0, 1}) {
            sides[side].acknowledge(sides[1 - side].accepted());
            for (const auto& each : sides[side].unacked())
              in_flight[1 - side].push_back(each.number);
          }
        };
    for (int move = 0; move < 2000; ++move) {
      const int side = static_cast<int>(random() % 2);
      switch (random() % 20) {
        case 0:
          if (random() % 10 == 0) reconnect();
          break;
        case 1:
        case 2:
          if (!acks[side].empty())
            sides[side].acknowledge(acks[side].front()), acks[side].pop_front();
          break;
        default:
          if (random() % 2 == 0) {
            sent[side] = sides[side].enqueue(bytes(1), false);
            in_flight[1 - side].push_back(sent[side]);
          } else {
            deliver(side);
          }
      }
    }
    reconnect();
    for (const int side : {0, 1}) {
      while (!in_flight[side].empty()) deliver(side);
      ASSERT_EQ(got[side].size(), sent[1 - side]) << "seed " << seed;
      ASSERT_TRUE(std::ranges::is_sorted(got[side]));
    }
  }
}

}  // namespace
}  // namespace regroup::agent
