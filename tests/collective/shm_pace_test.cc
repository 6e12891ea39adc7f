// Which stores a member chooses, told how long both take.
#include "collective/shm/pace.h"

#include <gtest/gtest.h>

#include <deque>

namespace regroup::collective::testing {
namespace {

constexpr std::size_t kBytes = 64 << 10;

// A machine on which a chunk takes so many ticks; what it took is heard of `lag` chunks later.
struct Machine {
  std::uint64_t plain, stream;
  double much = 2;
  unsigned lag = 0;
  std::deque<Stores> under_way = {};

  // How many of `chunks` went past the cache.
  int run(Pace& pace, int chunks, int disturb_every = 0) {
    int streams = 0;
    for (int i = 1; i <= chunks; ++i) {
      under_way.push_back(pace.next());
      streams += under_way.back() == Stores::kStream ? 1 : 0;
      if (under_way.size() <= lag) continue;
      const Stores stores = under_way.front();
      under_way.pop_front();
      const std::uint64_t ticks = stores == Stores::kStream ? stream : plain;
      pace.took(stores, disturb_every > 0 && i % disturb_every == 0 ? 1000 * ticks : ticks, kBytes, much);
    }
    return streams;
  }
};

TEST(Pace, KeepsToPlainStoresWhereOthersAreNotMuchBetter) {
  for (unsigned lag = 0; lag <= Pace::kLag; ++lag) {
    Pace pace;
    Machine near{4000, 3000, 2, lag};
    near.run(pace, 1000);
    EXPECT_EQ(pace.settled(), Stores::kPlain);
    EXPECT_LE(near.run(pace, 20000), 100) << "trials cost too much";
  }
}

TEST(Pace, GoesPastTheCacheSoonWhereThatIsMuchBetter) {
  for (unsigned lag = 0; lag <= Pace::kLag; ++lag) {
    Pace pace;
    Machine far{27000, 3000, 2, lag};
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
  for (const int every : {2, 3}) {
    Pace near_pace;
    Pace far_pace;
    Machine{4000, 3000}.run(near_pace, 3000, every);
    EXPECT_EQ(near_pace.settled(), Stores::kPlain);
    Machine{27000, 3000}.run(far_pace, 3000, every);
    EXPECT_EQ(far_pace.settled(), Stores::kStream);
  }
}

TEST(Pace, AsksHowMuchBetterTheyMustBe) {
  Pace pace;
  Machine{4000, 3000, 1.1}.run(pace, 100);
  EXPECT_EQ(pace.settled(), Stores::kStream);
}

// Trials of members that run the same operations fall together, whatever each measures.
TEST(Pace, TriesAtTheSameTimeAsOthersWhileItMeasuresAlike) {
  Pace one;
  Pace other;
  Machine near{4000, 3000};
  Machine nearer{1500, 3000, 2, 3};
  for (int i = 0; i < 5000; ++i) {
    const int streams = near.run(one, 1);
    EXPECT_EQ(streams, nearer.run(other, 1)) << "chunk " << i;
  }
}

}  // namespace
}  // namespace regroup::collective::testing
