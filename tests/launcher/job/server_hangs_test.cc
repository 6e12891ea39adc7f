// Which standing server counts as hung.
#include "launcher/job/server_hangs.h"

#include <gtest/gtest.h>

#include <vector>

namespace regroup::job {
namespace {

using std::chrono::seconds;

class ServerHangsTest : public testing::Test {
 protected:
  // A round `after` the one before it, in which server 0 has these shards.
  Standstill look(seconds after, const std::vector<ShardBeats>& shards) {
    now_ += after;
    hangs_.begin_round(now_);
    const auto still = hangs_.look(0, shards);
    EXPECT_TRUE(still);
    return still.value_or(Standstill{});
  }

  base::TimePoint now_{seconds(1000)};
  ServerHangs hangs_{seconds(1)};
};

TEST_F(ServerHangsTest, OneOfItsShardsThatStandsIsEnough) {
  EXPECT_EQ(look(seconds(1), {{2, 7}, {5, 7}}).time, seconds(0));
  look(seconds(1), {{2, 8}, {5, 7}});
  const Standstill still = look(seconds(1), {{2, 9}, {5, 7}});
  EXPECT_EQ(still.shard, 5U);
  EXPECT_EQ(still.time, seconds(2));
  EXPECT_TRUE(still.moved) << "shard 2 has moved";
  EXPECT_EQ(hangs_.last(0)->time, seconds(2));
  EXPECT_EQ(look(seconds(1), {{2, 10}, {5, 8}}).time, seconds(0)) << "it goes on";
}

TEST_F(ServerHangsTest, AShardThatIsNewHereHasTheWholeTime) {
  look(seconds(1), {{0, 7}});
  look(seconds(1), {{0, 7}});
  EXPECT_EQ(look(seconds(1), {{1, 7}}).time, seconds(0));
  hangs_.begin(0);
  EXPECT_EQ(hangs_.last(0), std::nullopt);
  EXPECT_EQ(look(seconds(1), {{1, 7}}).time, seconds(0)) << "of another process";
  EXPECT_FALSE(look(seconds(1), {{1, 7}}).moved);
}

// As by SIGSTOP to all processes of the job, of `scontrol suspend` for example.
TEST_F(ServerHangsTest, TimeInWhichTheLauncherDidNotRunCountsForNoServer) {
  look(seconds(1), {{0, 7}});
  EXPECT_EQ(look(seconds(1), {{0, 7}}).time, seconds(1));
  EXPECT_EQ(look(seconds(3600), {{0, 7}}).time, seconds(2));
  EXPECT_EQ(look(seconds(2), {{0, 7}}).time, seconds(4)) << "a late round";
}

TEST_F(ServerHangsTest, AServerWithoutShardsDoesNotHang) {
  hangs_.begin_round(now_);
  EXPECT_EQ(hangs_.look(0, {}), std::nullopt);
}

}  // namespace
}  // namespace regroup::job
