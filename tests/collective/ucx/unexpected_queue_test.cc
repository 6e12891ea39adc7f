// The limits of one sender in the unexpected queue.
#include "collective/ucx/unexpected_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup::collective::ucx_unexpected_queue {
namespace {

using ::testing::HasSubstr;

constexpr ucx::CommunicatorId kCommunicator{7, 0, 1};

ucx::ActiveMessage message(ucx::MessageKind kind, std::uint64_t number, int from,
                           std::size_t bytes = 0) {
  ucx::ActiveMessage out{{{kCommunicator, kind, number, 0, from}, {}}};
  out.bytes = bytes;
  return out;
}

class UcxUnexpectedQueue : public ::testing::Test {
 protected:
  // Puts messages with ascending numbers until one is rejected; returns how many were accepted.
  std::size_t fill(ucx::MessageKind kind, int from, std::size_t bytes) {
    for (std::uint64_t number = 0;; ++number) {
      last_ = queue_.put(message(kind, number, from, bytes));
      if (!last_.ok()) return number;
    }
  }

  ucx::UnexpectedQueue queue_{3};
  base::Status last_;
};

TEST_F(UcxUnexpectedQueue, LimitsTheMessagesOfEachSender) {
  EXPECT_EQ(fill(ucx::MessageKind::kReadyToReceive, 1, 0), ucx::UnexpectedQueue::kMaxMessages);
  EXPECT_EQ(last_.code(), base::Code::kResourceExhausted);
  EXPECT_THAT(
      last_.message(),
      HasSubstr("rank 1: unexpected-message limit exceeded (65536 messages, 0 bytes queued)"));
  EXPECT_EQ(fill(ucx::MessageKind::kAck, 2, 0), ucx::UnexpectedQueue::kMaxMessages);
}

TEST_F(UcxUnexpectedQueue, LimitsTheBytesOfEachSenderButForOneMessage) {
  EXPECT_EQ(fill(ucx::MessageKind::kData, 1, ucx::UnexpectedQueue::kMaxBytes / 4 - 1), 5U);
  EXPECT_THAT(last_.message(),
              HasSubstr("rank 1: unexpected-message limit exceeded (5 messages, "));
  EXPECT_TRUE(queue_.put(message(ucx::MessageKind::kData, 0, 2, std::size_t{1} << 40)).ok());
  EXPECT_FALSE(queue_.put(message(ucx::MessageKind::kData, 1, 2, 0)).ok());
}

TEST_F(UcxUnexpectedQueue, HasRoomAgainWhenMessagesAreTaken) {
  const std::size_t most = fill(ucx::MessageKind::kData, 1, ucx::UnexpectedQueue::kMaxBytes / 4);
  EXPECT_EQ(most, 4U);
  for (std::uint64_t round = 0; round < 100; ++round) {
    const ucx::ActiveMessage gone =
        queue_.remove({kCommunicator, ucx::MessageKind::kData, round, 0, 1});
    EXPECT_EQ(gone.bytes, ucx::UnexpectedQueue::kMaxBytes / 4);
    EXPECT_TRUE(queue_.put(message(ucx::MessageKind::kData, most + round, 1, gone.bytes)).ok());
  }
  EXPECT_FALSE(queue_.put(message(ucx::MessageKind::kData, 1000, 1, 1)).ok());
  std::size_t left = 0;
  while (queue_.remove_any()) left += 1;
  EXPECT_EQ(left, most);
  EXPECT_EQ(fill(ucx::MessageKind::kData, 1, ucx::UnexpectedQueue::kMaxBytes / 4), most);
}

TEST_F(UcxUnexpectedQueue, HasRoomAgainWhenProbesAreDropped) {
  EXPECT_EQ(fill(ucx::MessageKind::kProbe, 1, 0), ucx::UnexpectedQueue::kMaxMessages);
  queue_.drop_probes(kCommunicator, 9);  // 0 to 9
  EXPECT_EQ(queue_.find({kCommunicator, ucx::MessageKind::kProbe, 9, 0, 1}), nullptr);
  EXPECT_NE(queue_.find({kCommunicator, ucx::MessageKind::kProbe, 10, 0, 1}), nullptr);
  for (std::uint64_t number = 0; number < 10; ++number) {
    EXPECT_TRUE(queue_.put(message(ucx::MessageKind::kProbe, number, 1)).ok());
  }
  EXPECT_FALSE(queue_.put(message(ucx::MessageKind::kProbe, 10, 1)).ok());
}

// A message for which a receive is posted fits its buffer; others count.
TEST_F(UcxUnexpectedQueue, AcceptsAnyMessageForWhichAReceiveIsPosted) {
  EXPECT_EQ(fill(ucx::MessageKind::kData, 1, ucx::UnexpectedQueue::kMaxBytes), 1U);
  EXPECT_FALSE(queue_.put(message(ucx::MessageKind::kPointToPoint, 1, 1, 8)).ok());
  queue_.post_receive(1);
  EXPECT_TRUE(
      queue_.put(message(ucx::MessageKind::kPointToPoint, 1, 1, ucx::UnexpectedQueue::kMaxBytes))
          .ok());
  EXPECT_FALSE(queue_.put(message(ucx::MessageKind::kPointToPoint, 2, 1, 8)).ok());
  static_cast<void>(queue_.remove({kCommunicator, ucx::MessageKind::kPointToPoint, 1, 0, 1}));
  EXPECT_FALSE(queue_.put(message(ucx::MessageKind::kData, 1, 1, 1))
                   .ok());  // removing the message has freed nothing
}

// Data that is still at its sender takes no memory here.
TEST_F(UcxUnexpectedQueue, CountsNoBytesThatAreStillAtTheSender) {
  ucx::ActiveMessage remote =
      message(ucx::MessageKind::kData, 1, 1, ucx::UnexpectedQueue::kMaxBytes);
  remote.fetch = true;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(queue_.put(remote).ok());
}

}  // namespace
}  // namespace regroup::collective::ucx_unexpected_queue
