// Which stores a member chooses, given the cost of both kinds.
#include "collective/shm/store_tuner.h"

#include <gtest/gtest.h>

#include <deque>

namespace regroup::collective::testing::shm_store_tuner {
namespace {

constexpr std::size_t kBytes = 64 << 10;
constexpr std::uint64_t kInterrupted = 1'000'000;  // ticks more

// A machine on which a chunk takes so many ticks; its time is recorded `lag` chunks later.
struct Machine {
  std::uint64_t plain, stream;
  unsigned lag = 0;
  std::deque<reduce::Stores> under_way = {};

  // Returns how many of `chunks` used streaming stores. Interrupted: all but one of `spares`,
  // alternately of each kind.
  int run(shm::StoreTuner& tuner, int chunks, int spares = 0) {
    int streams = 0;
    for (int i = 0; i < chunks; ++i) {
      under_way.push_back(tuner.next());
      streams += under_way.back() == reduce::Stores::kStream ? 1 : 0;
      if (under_way.size() <= lag) continue;
      const reduce::Stores stores = under_way.front();
      under_way.pop_front();
      const bool hits =
          spares > 0 && i % spares != 0 && (i / 97 % 2 == 0) == (stores == reduce::Stores::kPlain);
      const std::uint64_t ticks = stores == reduce::Stores::kStream ? stream : plain;
      tuner.record(stores, ticks + (hits ? kInterrupted : 0), kBytes);
    }
    return streams;
  }
};

TEST(StoreTuner, KeepsToPlainStoresWhereOthersAreNotMuchBetter) {
  for (unsigned lag = 0; lag <= shm::StoreTuner::kLag; ++lag) {
    shm::StoreTuner tuner;
    Machine near_machine{4000, 3000, lag};
    near_machine.run(tuner, 1000);
    EXPECT_EQ(tuner.choice(), reduce::Stores::kPlain);
    EXPECT_LE(near_machine.run(tuner, 20000), 100) << "trials cost too much";
  }
}

TEST(StoreTuner, GoesPastTheCacheSoonWhereThatIsMuchBetter) {
  for (unsigned lag = 0; lag <= shm::StoreTuner::kLag; ++lag) {
    shm::StoreTuner tuner;
    Machine far_machine{27000, 3000, lag};
    far_machine.run(tuner, 40);
    EXPECT_EQ(tuner.choice(), reduce::Stores::kStream);
    EXPECT_GE(far_machine.run(tuner, 20000), 19900) << "trials cost too much";
  }
}

TEST(StoreTuner, FollowsAMachineThatChanges) {
  shm::StoreTuner tuner;
  Machine near_machine{2000, 3000};
  Machine far_machine{27000, 3000};
  near_machine.run(tuner, 5000);
  far_machine.run(tuner, shm::StoreTuner::kMaxIdle + 20);
  EXPECT_EQ(tuner.choice(), reduce::Stores::kStream);
  far_machine.run(tuner, 5000);
  near_machine.run(tuner, shm::StoreTuner::kMaxIdle + 20);
  EXPECT_EQ(tuner.choice(), reduce::Stores::kPlain);
}

TEST(StoreTuner, IgnoresChunksThatWereInterrupted) {
  for (const int spares : {2, 3, 4}) {
    shm::StoreTuner intra_tuner;
    shm::StoreTuner inter_tuner;
    for (int i = 1; i <= 40; ++i) {
      Machine{4000, 3000}.run(intra_tuner, 250, spares);
      EXPECT_EQ(intra_tuner.choice(), reduce::Stores::kPlain) << i;
      Machine{27000, 3000}.run(inter_tuner, 250, spares);
      EXPECT_EQ(inter_tuner.choice(), reduce::Stores::kStream) << i;
    }
  }
}

TEST(StoreTuner, RequiresAFactorOfTwo) {
  shm::StoreTuner less;
  shm::StoreTuner more;
  Machine{5900, 3000}.run(less, 100);
  Machine{6100, 3000}.run(more, 100);
  EXPECT_EQ(less.choice(), reduce::Stores::kPlain);
  EXPECT_EQ(more.choice(), reduce::Stores::kStream);
}

// Whatever each of them measures, or if it measures nothing.
TEST(StoreTuner, TriesAtTheSameTimeAsOthers) {
  shm::StoreTuner intra_tuner;
  shm::StoreTuner inter_tuner;
  shm::StoreTuner unmeasured;
  Machine near_machine{4000, 3000};
  Machine far_machine{27000, 3000, 3};
  for (int i = 0; i < 10'000; ++i) {
    const bool other = near_machine.run(intra_tuner, 1) == 1;
    const bool far_other = far_machine.run(inter_tuner, 1) == 0;
    EXPECT_EQ(unmeasured.next() == reduce::Stores::kStream, other) << "chunk " << i;
    EXPECT_TRUE(far_other == other || i < 40) << "chunk " << i;
  }
}

constexpr std::uint64_t kLoops = 10'000;  // long enough for any clock

// A chunk, begun and ended at once. Plain stores take `times` times as long.
reduce::Stores stage(shm::StoreTuners& tuners, Kind kind, std::size_t placed, std::uint64_t epoch,
                     std::uint64_t times) {
  const reduce::Stores stores = tuners.begin(kind, placed, epoch);
  tuners.measure(epoch, [&] {
    const std::uint64_t count = stores == reduce::Stores::kPlain ? times * kLoops : kLoops;
    for (std::uint64_t i = 0; i < count; ++i) asm volatile("");
  });
  tuners.end(kind, placed, epoch, placed);
  return stores;
}

TEST(StoreTuners, KindsAndSizesHaveEachTheirOwn) {
  shm::StoreTuners tuners(shm::StorePolicy::kTuned);
  for (std::uint64_t epoch = 0; epoch < 100; ++epoch) {
    stage(tuners, Kind::kBroadcast, 64 << 10, epoch, 20);
    stage(tuners, Kind::kAllgather, 64 << 10, epoch, 1);
    EXPECT_EQ(stage(tuners, Kind::kBroadcast, 4 << 10, epoch, 20), reduce::Stores::kPlain);
  }
  EXPECT_EQ(tuners.choice(Kind::kBroadcast, 64 << 10), reduce::Stores::kStream);
  EXPECT_EQ(tuners.choice(Kind::kBroadcast, (32 << 10) + 1), reduce::Stores::kStream);
  EXPECT_EQ(tuners.choice(Kind::kBroadcast, 32 << 10), reduce::Stores::kPlain);
  EXPECT_EQ(tuners.choice(Kind::kBroadcast, 4 << 10), reduce::Stores::kPlain);
  EXPECT_EQ(tuners.choice(Kind::kBroadcast, shm::kChunk), reduce::Stores::kPlain);
  EXPECT_EQ(tuners.choice(Kind::kAllgather, 64 << 10), reduce::Stores::kPlain);
}

// A chunk that did not begin, was skipped or is small leaves no time behind for the next one at its
// place.
TEST(StoreTuners, MeasureOnlyBegunChunks) {
  shm::StoreTuners tuners(shm::StorePolicy::kTuned);
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    tuners.skip(Kind::kAllreduce, 64 << 10, epoch);
    EXPECT_EQ(tuners.stores_of(epoch), reduce::Stores::kPlain);
    tuners.measure(epoch, [] {});
    tuners.end(Kind::kAllreduce, 64 << 10, epoch, 64 << 10);
    EXPECT_EQ(tuners.choice(Kind::kAllreduce, 64 << 10), reduce::Stores::kPlain);
  }
}

TEST(StoreTuners, ObeyAFixedPolicy) {
  shm::StoreTuners plain(shm::StorePolicy::kPlain);
  shm::StoreTuners past(shm::StorePolicy::kStream);
  for (std::uint64_t epoch = 0; epoch < 100; ++epoch) {
    EXPECT_EQ(stage(plain, Kind::kBroadcast, 64 << 10, epoch, 20), reduce::Stores::kPlain);
    EXPECT_EQ(stage(past, Kind::kBroadcast, 1, epoch, 1), reduce::Stores::kStream);
    EXPECT_EQ(past.stores_of(epoch), reduce::Stores::kStream);
  }
}

}  // namespace
}  // namespace regroup::collective::testing::shm_store_tuner
