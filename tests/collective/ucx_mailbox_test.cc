// What a member may have in the mailbox of another before it is too much.
#include "collective/ucx/mailbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup::collective::ucx_mailbox {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr LineId kLine{7, 0, 1};

Letter letter(LetterKind kind, std::uint64_t number, int from, std::size_t bytes = 0) {
  Letter out{{{kLine, kind, number, 0, from}, {}}};
  out.bytes = bytes;
  return out;
}

class UcxMailbox : public ::testing::Test {
 protected:
  // Puts letters, each of another number, until one is refused; how many it took.
  std::size_t fill(LetterKind kind, int from, std::size_t bytes) {
    for (std::uint64_t number = 0;; ++number) {
      last_ = box_.put(letter(kind, number, from, bytes));
      if (!last_.ok()) return number;
    }
  }

  Mailbox box_{3};
  core::Status last_;
};

TEST_F(UcxMailbox, TakesSoManyLettersOfEachMember) {
  EXPECT_EQ(fill(LetterKind::kReady, 1, 0), Mailbox::kLetters);
  EXPECT_EQ(last_.code(), core::Code::kResourceExhausted);
  EXPECT_THAT(last_.message(),
              AllOf(HasSubstr("rank 1 has 65536 letters of 0 bytes"), HasSubstr("sends more")));
  EXPECT_EQ(fill(LetterKind::kReceipt, 2, 0), Mailbox::kLetters);
}

TEST_F(UcxMailbox, TakesSoManyBytesOfEachMemberAndOneOfAnySizeBehind) {
  EXPECT_EQ(fill(LetterKind::kData, 1, Mailbox::kBytes / 4 - 1), 5U);
  EXPECT_THAT(last_.message(), HasSubstr("rank 1 has 5 letters"));
  EXPECT_TRUE(box_.put(letter(LetterKind::kData, 0, 2, std::size_t{1} << 40)).ok());
  EXPECT_FALSE(box_.put(letter(LetterKind::kData, 1, 2, 0)).ok());
}

TEST_F(UcxMailbox, HasRoomAgainForWhoseLettersAreTaken) {
  const std::size_t most = fill(LetterKind::kData, 1, Mailbox::kBytes / 4);
  EXPECT_EQ(most, 4U);
  for (std::uint64_t round = 0; round < 100; ++round) {
    const Letter gone = box_.remove({kLine, LetterKind::kData, round, 0, 1});
    EXPECT_EQ(gone.bytes, Mailbox::kBytes / 4);
    EXPECT_TRUE(box_.put(letter(LetterKind::kData, most + round, 1, gone.bytes)).ok());
  }
  EXPECT_FALSE(box_.put(letter(LetterKind::kData, 1000, 1, 1)).ok());
  std::size_t left = 0;
  while (box_.remove_any()) left += 1;
  EXPECT_EQ(left, most);
  EXPECT_EQ(fill(LetterKind::kData, 1, Mailbox::kBytes / 4), most);
}

TEST_F(UcxMailbox, HasRoomAgainForWhoseCallsAreDropped) {
  EXPECT_EQ(fill(LetterKind::kCall, 1, 0), Mailbox::kLetters);
  box_.drop_calls(kLine, 9);  // 0 to 9
  EXPECT_EQ(box_.find({kLine, LetterKind::kCall, 9, 0, 1}), nullptr);
  EXPECT_NE(box_.find({kLine, LetterKind::kCall, 10, 0, 1}), nullptr);
  for (std::uint64_t number = 0; number < 10; ++number) {
    EXPECT_TRUE(box_.put(letter(LetterKind::kCall, number, 1)).ok());
  }
  EXPECT_FALSE(box_.put(letter(LetterKind::kCall, 10, 1)).ok());
}

// It has the size of memory that waits for it; what nobody has asked for counts.
TEST_F(UcxMailbox, TakesAnyMessageThatWasAskedFor) {
  EXPECT_EQ(fill(LetterKind::kData, 1, Mailbox::kBytes), 1U);
  EXPECT_FALSE(box_.put(letter(LetterKind::kMessage, 1, 1, 8)).ok());
  box_.ask(1);
  EXPECT_TRUE(box_.put(letter(LetterKind::kMessage, 1, 1, Mailbox::kBytes)).ok());
  EXPECT_FALSE(box_.put(letter(LetterKind::kMessage, 2, 1, 8)).ok());
  static_cast<void>(box_.remove({kLine, LetterKind::kMessage, 1, 0, 1}));
  EXPECT_FALSE(box_.put(letter(LetterKind::kData, 1, 1, 1)).ok());  // that the message is gone makes no room
}

// Data that is still with its sender takes no memory here.
TEST_F(UcxMailbox, CountsNoBytesThatAreNotHere) {
  Letter far = letter(LetterKind::kData, 1, 1, Mailbox::kBytes);
  far.fetch = true;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(box_.put(far).ok());
}

}  // namespace
}  // namespace regroup::collective::ucx_mailbox
