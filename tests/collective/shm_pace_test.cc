// Which stores a member chooses, told how long both take.
#include "collective/shm/pace.h"

#include <gtest/gtest.h>

#include <deque>

namespace regroup::collective::testing::shm_pace {
namespace {

constexpr std::size_t kBytes = 64 << 10;
constexpr std::uint64_t kInterrupted = 1'000'000;  // ticks more

// A machine on which a chunk takes so many ticks; what it took is heard of `lag` chunks later.
struct Machine {
  std::uint64_t plain, stream;
  unsigned lag = 0;
  std::deque<Stores> under_way = {};

  // How many of `chunks` went past the cache. Interrupted: all but one of `spares`, of one kind, then the
  // other.
  int run(Pace& pace, int chunks, int spares = 0) {
    int streams = 0;
    for (int i = 0; i < chunks; ++i) {
      under_way.push_back(pace.next());
      streams += under_way.back() == Stores::kStream ? 1 : 0;
      if (under_way.size() <= lag) continue;
      const Stores stores = under_way.front();
      under_way.pop_front();
      const bool hits = spares > 0 && i % spares != 0 && (i / 97 % 2 == 0) == (stores == Stores::kPlain);
      const std::uint64_t ticks = stores == Stores::kStream ? stream : plain;
      pace.took(stores, ticks + (hits ? kInterrupted : 0), kBytes);
    }
    return streams;
  }
};

TEST(Pace, KeepsToPlainStoresWhereOthersAreNotMuchBetter) {
  for (unsigned lag = 0; lag <= Pace::kLag; ++lag) {
    Pace pace;
    Machine near{4000, 3000, lag};
    near.run(pace, 1000);
    EXPECT_EQ(pace.settled(), Stores::kPlain);
    EXPECT_LE(near.run(pace, 20000), 100) << "trials cost too much";
  }
}

TEST(Pace, GoesPastTheCacheSoonWhereThatIsMuchBetter) {
  for (unsigned lag = 0; lag <= Pace::kLag; ++lag) {
    Pace pace;
    Machine far{27000, 3000, lag};
    far.run(pace, 40);
    EXPECT_EQ(pace.settled(), Stores::kStream);
    EXPECT_GE(far.run(pace, 20000), 19900) << "trials cost too much";
  }
}

TEST(Pace, FollowsAMachineThatMoves) {
  Pace pace;
  Machine near{2000, 3000};
  Machine far{27000, 3000};
  near.run(pace, 5000);
  far.run(pace, Pace::kMostRest + 20);
  EXPECT_EQ(pace.settled(), Stores::kStream);
  far.run(pace, 5000);
  near.run(pace, Pace::kMostRest + 20);
  EXPECT_EQ(pace.settled(), Stores::kPlain);
}

TEST(Pace, DoesNotBelieveChunksThatWereInterrupted) {
  for (const int spares : {2, 3, 4}) {
    Pace near_pace;
    Pace far_pace;
    for (int i = 1; i <= 40; ++i) {
      Machine{4000, 3000}.run(near_pace, 250, spares);
      EXPECT_EQ(near_pace.settled(), Stores::kPlain) << i;
      Machine{27000, 3000}.run(far_pace, 250, spares);
      EXPECT_EQ(far_pace.settled(), Stores::kStream) << i;
    }
  }
}

TEST(Pace, AsksForTwice) {
  Pace less;
  Pace more;
  Machine{5900, 3000}.run(less, 100);
  Machine{6100, 3000}.run(more, 100);
  EXPECT_EQ(less.settled(), Stores::kPlain);
  EXPECT_EQ(more.settled(), Stores::kStream);
}

// Whatever each measures, or does not.
TEST(Pace, TriesAtTheSameTimeAsOthers) {
  Pace near_pace;
  Pace far_pace;
  Pace deaf;
  Machine near{4000, 3000};
  Machine far{27000, 3000, 3};
  for (int i = 0; i < 10'000; ++i) {
    const bool other = near.run(near_pace, 1) == 1;
    const bool far_other = far.run(far_pace, 1) == 0;
    EXPECT_EQ(deaf.next() == Stores::kStream, other) << "chunk " << i;
    EXPECT_TRUE(far_other == other || i < 40) << "chunk " << i;
  }
}

constexpr std::uint64_t kLoops = 10'000;  // long enough for any clock

// A chunk, begun and ended at once. With plain stores it takes so many times as long.
Stores stage(Paces& paces, Kind kind, std::size_t placed, std::uint64_t time, std::uint64_t times) {
  const Stores stores = paces.begin(kind, placed, time);
  paces.spend(time, [&] {
    const std::uint64_t count = stores == Stores::kPlain ? times * kLoops : kLoops;
    for (std::uint64_t i = 0; i < count; ++i) asm volatile("");
  });
  paces.end(kind, placed, time, placed);
  return stores;
}

TEST(Paces, KindsAndSizesHaveEachTheirOwn) {
  Paces paces(Staging::kMeasured);
  for (std::uint64_t time = 0; time < 100; ++time) {
    stage(paces, Kind::kBroadcast, 64 << 10, time, 20);
    stage(paces, Kind::kAllgather, 64 << 10, time, 1);
    EXPECT_EQ(stage(paces, Kind::kBroadcast, 4 << 10, time, 20), Stores::kPlain);
  }
  EXPECT_EQ(paces.settled(Kind::kBroadcast, 64 << 10), Stores::kStream);
  EXPECT_EQ(paces.settled(Kind::kBroadcast, (32 << 10) + 1), Stores::kStream);
  EXPECT_EQ(paces.settled(Kind::kBroadcast, 32 << 10), Stores::kPlain);
  EXPECT_EQ(paces.settled(Kind::kBroadcast, 4 << 10), Stores::kPlain);
  EXPECT_EQ(paces.settled(Kind::kBroadcast, kChunk), Stores::kPlain);
  EXPECT_EQ(paces.settled(Kind::kAllgather, 64 << 10), Stores::kPlain);
}

// A chunk that did not begin, was passed or is small leaves no time behind for the next at its place.
TEST(Paces, MeasureWhatBeganOnly) {
  Paces paces(Staging::kMeasured);
  for (std::uint64_t time = 0; time < 200; ++time) {
    paces.pass(Kind::kAllreduce, 64 << 10, time);
    EXPECT_EQ(paces.stores_of(time), Stores::kPlain);
    paces.spend(time, [] {});
    paces.end(Kind::kAllreduce, 64 << 10, time, 64 << 10);
    EXPECT_EQ(paces.settled(Kind::kAllreduce, 64 << 10), Stores::kPlain);
  }
}

TEST(Paces, CanBeTold) {
  Paces plain(Staging::kPlain);
  Paces past(Staging::kPast);
  for (std::uint64_t time = 0; time < 100; ++time) {
    EXPECT_EQ(stage(plain, Kind::kBroadcast, 64 << 10, time, 20), Stores::kPlain);
    EXPECT_EQ(stage(past, Kind::kBroadcast, 1, time, 1), Stores::kStream);
    EXPECT_EQ(past.stores_of(time), Stores::kStream);
  }
}

}  // namespace
}  // namespace regroup::collective::testing::shm_pace
