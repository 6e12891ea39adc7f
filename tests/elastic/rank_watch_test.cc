// Ranks that end without joining: what the processes of a host tell, and when a World is given up.
#include "elastic/rank_watch.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace regroup::elastic {
namespace {

using Started = RankScan::Started;
using std::chrono::seconds;

constexpr base::TimePoint kStart{};

RankScan seeing(std::map<std::uint32_t, pid_t> living, Started started = Started::kUnknown) {
  RankScan out{std::move(living), {}, false, started};
  for (const auto& [rank, pid] : out.living) out.processes.insert(pid);
  return out;
}

TEST(RankWatchTest, NamesARankWhoseProcessHasEnded) {
  RankWatch watch(3, kStart);
  EXPECT_FALSE(watch.check(kStart, seeing({{0, 10}, {1, 11}, {2, 12}}), {0, 2}));
  EXPECT_FALSE(watch.check(kStart + seconds(1), seeing({{0, 10}, {2, 12}}), {0, 2}));
  EXPECT_EQ(watch.check(kStart + seconds(2), seeing({{0, 10}, {2, 12}}), {0, 2}),
            "rank 1 (process 11) has ended, and 2 of 3 ranks wait in join() for it");
}

TEST(RankWatchTest, SparesARankThatHidesItsVariables) {
  RankWatch watch(2, kStart);
  EXPECT_FALSE(watch.check(kStart, seeing({{0, 10}, {1, 11}}), {0}));
  RankScan titled = seeing({{0, 10}}, Started::kUnknown);
  titled.processes.insert(11);  // it has set a title where its environment was
  for (int i = 1; i < 100; ++i) EXPECT_FALSE(watch.check(kStart + seconds(i), titled, {0}));
  titled.processes.erase(11);
  EXPECT_FALSE(watch.check(kStart + seconds(100), titled, {0}));
  EXPECT_TRUE(watch.check(kStart + seconds(101), titled, {0}));
}

TEST(RankWatchTest, WaitsForARankThatMayNotHaveBeenStarted) {
  for (const Started started : {Started::kUnknown, Started::kSoon}) {
    RankWatch watch(2, kStart);
    for (int i = 0; i < 5; ++i)
      EXPECT_FALSE(watch.check(kStart + seconds(i), seeing({{0, 10}}, started), {0}));
    EXPECT_EQ(watch.check(kStart + seconds(5), seeing({{0, 10}}, started), {0}).has_value(),
              started == Started::kSoon);
  }
}

// A World has failed before this rank came.
TEST(RankWatchTest, NamesRanksThatEndedBeforeTheFirstPoll) {
  RankWatch watch(3, kStart);
  EXPECT_FALSE(watch.check(kStart, seeing({{2, 12}}, Started::kAll), {2}));
  EXPECT_EQ(watch.check(kStart + seconds(1), seeing({{2, 12}}, Started::kAll), {2}),
            "ranks 0, 1 have ended, and 1 of 3 ranks waits in join() for them");
}

TEST(RankWatchTest, JudgesNothingWhileAProcessIsHidden) {
  RankWatch watch(2, kStart);
  RankScan seen = seeing({{0, 10}}, Started::kAll);
  seen.hidden = true;
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(watch.check(kStart + seconds(i), seen, {0}));
}

TEST(RankWatchTest, NamesARankThatItsLauncherSaysHasEnded) {
  RankWatch watch(3, kStart);
  const RankScan told = parse_exits("0 10\n2 12\n");
  EXPECT_FALSE(watch.check(kStart, parse_exits(""), {0, 1}));
  // They wait: what has ended is what started them.
  EXPECT_FALSE(watch.check(kStart, told, {0, 2}));
  EXPECT_EQ(watch.check(kStart, told, {0, 1}),
            "rank 2 (process 12) ended with status 0 without calling join(), while 2 of 3 ranks "
            "wait in join()");
}

using Variables = std::map<std::string, std::string>;

DetectedLaunch hydra() {
  DetectedLaunch launch;
  launch.size = 2;
  launch.rank_variable = "PMI_RANK";
  launch.variables = {{"PMI_SIZE", "2"}, {"PMI_JOBID", ""}};
  launch.starter = 5;
  launch.by_launcher = true;
  return launch;
}

Variables rank(int number, int size = 2) {
  return {{"PMI_RANK", std::to_string(number)}, {"PMI_SIZE", std::to_string(size)}};
}

TEST(SeeRanksTest, RecognisesARankByItsVariables) {
  const auto seen =
      scan_ranks(hydra(), {{10, 5, false, rank(0)},
                           {11, 5, true, {}},  // ended
                           {20, 10, false, rank(0)},
                           {21, 20, false, rank(1, 9)}});  // of another launch, inside rank 0
  EXPECT_EQ(seen.living, (std::map<std::uint32_t, pid_t>{{0, 10}}));
  EXPECT_FALSE(seen.hidden);
  EXPECT_EQ(seen.started, Started::kAll);
}

TEST(SeeRanksTest, AChildThatIsNoRankYetMayBecomeOne) {
  EXPECT_EQ(scan_ranks(hydra(), {{10, 5, false, rank(0)}}).started, Started::kSoon);
  EXPECT_EQ(scan_ranks(hydra(), {{10, 5, false, rank(0)}, {11, 5, false, {{"PATH", "/"}}}}).started,
            Started::kUnknown);
  EXPECT_TRUE(scan_ranks(hydra(), {{10, 5, false, rank(0)}, {11, 5, false, {}}}).hidden);
  DetectedLaunch by_hand = hydra();
  by_hand.by_launcher = false;
  EXPECT_EQ(scan_ranks(by_hand, {{10, 5, false, rank(0)}, {11, 5, true, {}}}).started,
            Started::kUnknown);
}

}  // namespace
}  // namespace regroup::elastic
