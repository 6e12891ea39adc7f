// Where the members of a communicator find each other's data; without a communicator.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "collective/shm/bounce_buffer.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing::shm_bounce_buffers {
namespace {

TEST(ShmBounceBuffers, AreTheSameForEachMember) {
  const shmem::Arena arena = make_arena({.slots = 3});
  shm::BounceBuffers mine(arena, {0, 2});
  shm::BounceBuffers theirs(arena, {0, 2});
  ASSERT_EQ(mine.ranks(), 2U);
  std::size_t bytes = 1;
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch, bytes = bytes * 3 % shm::kChunk + 1) {
    const std::byte* const next = mine.next_chunk(1, epoch, bytes, false);
    mine.place(epoch, bytes, false);
    theirs.place(epoch, bytes, false);
    EXPECT_EQ(mine.chunk(1, epoch), next);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(mine.chunk(rank, epoch), theirs.chunk(rank, epoch));
      EXPECT_EQ(mine.inline_chunks(rank, epoch), theirs.inline_chunks(rank, epoch));
    }
  }
}

TEST(ShmBounceBuffers, LieInTheSlotOfTheirMember) {
  const shmem::Arena arena = make_arena({.slots = 3});
  shm::BounceBuffers buffers(arena, {2, 1});
  buffers.place(0, shm::kChunk, false);
  const auto lies_in = [&](const void* at, proto::SlotIndex slot) {
    const auto buffer = arena.bounce_buffer(slot);
    const auto* const byte = static_cast<const std::byte*>(at);
    return byte >= buffer.data() && byte + shm::kChunk <= buffer.data() + buffer.size();
  };
  EXPECT_TRUE(lies_in(buffers.chunk(0, 0), 2));
  EXPECT_TRUE(lies_in(buffers.chunk(1, 0), 1));
  EXPECT_TRUE(lies_in(buffers.inline_chunks(0, 5), 2));
}

// What a member writes in one epoch is read until two epochs later.
TEST(ShmBounceBuffers, KeepThreeEpochsApart) {
  const shmem::Arena arena = make_arena({.slots = 1});
  shm::BounceBuffers buffers(arena, {0});
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch) {
    buffers.place(epoch, shm::kChunk, false);
    for (std::uint64_t before = epoch < 2 ? 0 : epoch - 2; before < epoch; ++before) {
      const auto distance = buffers.chunk(0, epoch) - buffers.chunk(0, before);
      EXPECT_GE(std::abs(distance), static_cast<std::ptrdiff_t>(shm::kChunk)) << epoch;
      EXPECT_NE(buffers.inline_chunks(0, epoch), buffers.inline_chunks(0, before));
    }
  }
}

}  // namespace
}  // namespace regroup::collective::testing::shm_bounce_buffers
