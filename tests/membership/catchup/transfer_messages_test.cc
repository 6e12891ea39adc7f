// Messages of a state transfer are decoded as they were sent; all other bytes are refused.
#include "membership/catchup/transfer_messages.h"

#include <gtest/gtest.h>

#include "launcher/agent/wire.h"

namespace regroup::catchup {
namespace {

template <class Body>
Body through(const Body& body) {
  const auto message = decode_transfer(encode(TransferMessage(body)));
  EXPECT_TRUE(message.ok()) << message.status().to_string();
  return std::get<Body>(*message);
}

TEST(TransferMessages, EachKeepsWhatItSays) {
  const auto request = through(TransferRequest{4097, 1, 3, true});
  EXPECT_EQ(request.transfer, 4097U);
  EXPECT_EQ(request.part, 1U);
  EXPECT_EQ(request.parts, 3U);
  EXPECT_TRUE(request.results);
  const auto length = through(TransferLength{1ULL << 40, 17});
  EXPECT_EQ(length.bytes, 1ULL << 40);
  EXPECT_EQ(length.newest, 17U);
  const auto chunk = through(TransferChunk{17, 3, true, 0xdeadbeef, {std::byte{1}, std::byte{2}}});
  EXPECT_EQ(chunk.step, 17U);
  EXPECT_EQ(chunk.chunk, 3U);
  EXPECT_TRUE(chunk.last);
  EXPECT_EQ(chunk.crc, 0xdeadbeef);
  EXPECT_EQ(chunk.bytes, (std::vector{std::byte{1}, std::byte{2}}));
  EXPECT_EQ(through(TransferError{"why"}).why, "why");
}

TEST(TransferMessages, SenselessOnesAreRefused) {
  const auto code = [](const TransferMessage& message) {
    return decode_transfer(encode(message)).code();
  };
  EXPECT_EQ(code(TransferRequest{1, 0, 0, true}), base::Code::kDataLoss);
  EXPECT_EQ(code(TransferRequest{1, 3, 3, true}), base::Code::kDataLoss);
  EXPECT_EQ(code(TransferChunk{1, 0, true, 0, std::vector<std::byte>(shmem::kSnapshotChunk + 1)}),
            base::Code::kDataLoss);
}

TEST(TransferMessages, NothingElseIsTaken) {
  const std::vector<std::byte> whole = encode(TransferMessage(TransferError{"why"}));
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(decode_transfer(std::span(whole).first(size)).ok()) << size;
  EXPECT_FALSE(
      decode_transfer(agent::encode(agent::Message(agent::UserMessage{"of another kind"}))).ok());
}

}  // namespace
}  // namespace regroup::catchup
