// SlotRing of collective/shm/bounce_buffer.h: the data of three consecutive epochs never overlaps,
// in bounce buffers of any size.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "collective/shm/bounce_buffer.h"

namespace regroup::collective::shm_slot_ring {
namespace {

struct Placed {
  std::size_t begin, end;
};

TEST(SlotRing, DataOfThreeEpochsDoesNotOverlap) {
  std::mt19937_64 random(7);
  for (std::uint32_t slots = 1; slots <= proto::kMaxSlots; slots += 1 + slots / 3) {
    const std::size_t stage = shmem::bounce_buffer_bytes(slots);
    shm::SlotRing ring(stage);
    std::deque<Placed> last;
    for (std::uint64_t epoch = 5; epoch < 5000; ++epoch) {
      const std::size_t bytes =
          random() % 4 == 0 ? shm::kChunk : 1 + random() % (shm::kChunk >> random() % 8);
      const bool compact = random() % 2 == 0;
      const std::size_t expected = ring.next(epoch, bytes, compact);
      ring.place(epoch, bytes, compact);
      ASSERT_EQ(ring.at(epoch), expected);
      const Placed here{ring.at(epoch), ring.at(epoch) + bytes};
      ASSERT_LE(sizeof(shm::BounceBuffer) + shm::BounceBuffer::kSkews + here.end, stage)
          << slots << " slots";
      for (std::size_t ago = 0; ago < last.size(); ++ago) {
        const Placed& other = last[ago];
        ASSERT_TRUE(here.end <= other.begin || other.end <= here.begin)
            << slots << " slots, time " << epoch;
        ASSERT_EQ(ring.at(epoch - 1 - ago), other.begin);
      }
      last.push_front(here);
      if (last.size() == shm::kEpochsInFlight) last.pop_back();
    }
  }
}

// The range that chunks of `bytes` use once they have gone around the ring.
Placed span_of(std::size_t bytes, bool compact = false) {
  shm::SlotRing ring(shmem::bounce_buffer_bytes(2));
  Placed span{~std::size_t{0}, 0};
  for (std::uint64_t epoch = 0; epoch < 100; ++epoch) {
    ring.place(epoch, bytes, compact);
    span.begin = std::min(span.begin, ring.at(epoch));
    span.end = std::max(span.end, ring.at(epoch) + bytes);
  }
  return span;
}

TEST(SlotRing, LargerDataUsesALargerRing) {
  const Placed small = span_of(16 << 10);
  const Placed middle = span_of(32 << 10);
  const Placed large = span_of(64 << 10);
  const Placed compact = span_of(64 << 10, true);
  EXPECT_EQ(small.end - small.begin, std::size_t{48} << 10);
  EXPECT_EQ(middle.end - middle.begin, std::size_t{256} << 10);
  EXPECT_EQ(compact.end - compact.begin, std::size_t{640} << 10);
  EXPECT_GT(large.end - large.begin, std::size_t{7} << 18);  // what the bounce buffer has room for
  EXPECT_LE(large.end - large.begin, shm::SlotRing::kLargeRing);
  EXPECT_LE(small.end, middle.begin);
  EXPECT_LE(middle.end, large.begin);
}

}  // namespace
}  // namespace regroup::collective::shm_slot_ring
