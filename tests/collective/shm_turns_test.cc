// Turns of collective/shm/stage.h: what three rendezvous in a row have placed never overlaps, in stages of
// any size.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "collective/shm/stage.h"

namespace regroup::collective::shm_turns {
namespace {

struct Placed {
  std::size_t begin, end;
};

TEST(Turns, WhatThreeRendezvousPlaceLiesApart) {
  std::mt19937_64 random(7);
  for (std::uint32_t slots = 1; slots <= core::kMaxSlots; slots += 1 + slots / 3) {
    const std::size_t stage = core::stage_bytes(slots);
    Turns turns(stage);
    std::deque<Placed> last;
    for (std::uint64_t time = 5; time < 5000; ++time) {
      const std::size_t bytes = random() % 4 == 0 ? kChunk : 1 + random() % (kChunk >> random() % 8);
      const bool tight = random() % 2 == 0;
      const std::size_t expected = turns.next(time, bytes, tight);
      turns.place(time, bytes, tight);
      ASSERT_EQ(turns.at(time), expected);
      const Placed here{turns.at(time), turns.at(time) + bytes};
      ASSERT_LE(sizeof(Stage) + Stage::kSkews + here.end, stage) << slots << " slots";
      for (std::size_t ago = 0; ago < last.size(); ++ago) {
        const Placed& other = last[ago];
        ASSERT_TRUE(here.end <= other.begin || other.end <= here.begin) << slots << " slots, time " << time;
        ASSERT_EQ(turns.at(time - 1 - ago), other.begin);
      }
      last.push_front(here);
      if (last.size() == kTurns) last.pop_back();
    }
  }
}

// What `bytes` at a time lie in, once they have gone around.
Placed span_of(std::size_t bytes, bool tight = false) {
  Turns turns(core::stage_bytes(2));
  Placed span{~std::size_t{0}, 0};
  for (std::uint64_t time = 0; time < 100; ++time) {
    turns.place(time, bytes, tight);
    span.begin = std::min(span.begin, turns.at(time));
    span.end = std::max(span.end, turns.at(time) + bytes);
  }
  return span;
}

TEST(Turns, TheLargerTheDataTheLargerWhatTheyGoAround) {
  const Placed small = span_of(16 << 10);
  const Placed middle = span_of(32 << 10);
  const Placed large = span_of(64 << 10);
  const Placed tight = span_of(64 << 10, true);
  EXPECT_EQ(small.end - small.begin, std::size_t{48} << 10);
  EXPECT_EQ(middle.end - middle.begin, std::size_t{256} << 10);
  EXPECT_EQ(tight.end - tight.begin, std::size_t{640} << 10);
  EXPECT_GT(large.end - large.begin, std::size_t{7} << 18);  // what a stage has room for
  EXPECT_LE(large.end - large.begin, Turns::kLargeRing);
  EXPECT_LE(small.end, middle.begin);
  EXPECT_LE(middle.end, large.begin);
}

}  // namespace
}  // namespace regroup::collective::shm_turns
