// Inline chunks: across instances, with repeated words, and read while they are written.
#include "collective/shm/inline_chunk.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "tests/collective/harness.h"
#include "tests/collective/reference.h"

namespace regroup::collective::testing::shm_inline_chunk {
namespace {

constexpr std::size_t kMost = 8;  // chunks
constexpr std::size_t kPayload = sizeof(shm::InlineChunk::payload);

class InlineChunks : public ::testing::Test {
 protected:
  [[nodiscard]] Bytes read(shm::ChunkTag mark, std::size_t bytes) const {
    Bytes data(bytes);
    return shm::read_inline_chunks(chunks_.data(), mark, data) ? data : Bytes();
  }

  std::array<shm::InlineChunk, kMost> chunks_{};
};

TEST_F(InlineChunks, HoldWhatWasWrittenWithTheMark) {
  for (const std::size_t bytes :
       {std::size_t{1}, kPayload - 1, kPayload, kPayload + 1, kMost * kPayload}) {
    const Bytes data = make_leaf(Dtype::kUint8, bytes, bytes);
    const shm::ChunkTag mark{7, bytes};
    EXPECT_EQ(read(mark, bytes), Bytes()) << "before";
    shm::write_inline_chunks(chunks_.data(), mark, data);
    EXPECT_EQ(shm::inline_chunks_for(bytes), (bytes + kPayload - 1) / kPayload);
    EXPECT_EQ(read(mark, bytes), data);
    EXPECT_EQ(read({7, bytes + 1000}, bytes), Bytes()) << "another word";
    EXPECT_EQ(read({8, bytes}, bytes), Bytes()) << "another instance";
  }
}

TEST_F(InlineChunks, ArriveOnlyTogether) {
  const Bytes data = make_leaf(Dtype::kUint8, 3 * kPayload, 1);
  shm::write_inline_chunks(chunks_.data(), {1, 5}, data);
  shm::write_inline_chunks(chunks_.data(), {1, 6}, std::span(data).first(2 * kPayload));
  EXPECT_EQ(read({1, 6}, 3 * kPayload), Bytes());
  EXPECT_EQ(read({1, 6}, 2 * kPayload).size(), 2 * kPayload);
}

// Each instance begins with the same words. A reader that polls for the next chunks before they are
// written must not take those of the previous instance.
TEST_F(InlineChunks, AreReadWhileTheyAreWritten) {
  constexpr std::uint64_t kRounds = 20'000;
  constexpr std::size_t kBytes = 3 * kPayload;
  const auto tag_of = [](std::uint64_t round) {
    return shm::ChunkTag{1 + round / 2, 1 + round % 2};
  };
  std::atomic<std::uint64_t> read_up_to{0};
  std::thread writer([&] {
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      while (read_up_to.load(std::memory_order_acquire) < round) std::this_thread::yield();
      shm::write_inline_chunks(chunks_.data(), tag_of(round),
                               Bytes(kBytes, static_cast<std::byte>(round % 251)));
    }
  });
  Bytes data(kBytes);
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const bool came =
        eventually([&] { return shm::read_inline_chunks(chunks_.data(), tag_of(round), data); });
    EXPECT_TRUE(came) << round;
    EXPECT_EQ(data, Bytes(kBytes, static_cast<std::byte>(round % 251))) << round;
    read_up_to.store(round + 1, std::memory_order_release);
    if (HasFailure()) read_up_to.store(kRounds);
    if (HasFailure()) break;
  }
  writer.join();
}

}  // namespace
}  // namespace regroup::collective::testing::shm_inline_chunk
