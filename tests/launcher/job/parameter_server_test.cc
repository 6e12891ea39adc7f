// How often and when a parameter server is started again, how its memory is cut, and how servers
// leave.
#include "launcher/job/parameter_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/launcher/transport/net_test.h"

namespace regroup::job {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ServerEnd killed(base::Duration lived) { return {.killed = true, .lived = lived}; }
ServerEnd failed(base::Duration lived, bool served = false) {
  return {.killed = false, .served = served, .lived = lived};
}

TEST(ServerRestarts, TheNextServerIsStartedAtOnceAndAfterShortLivesLater) {
  ServerRestarts restarts;
  EXPECT_EQ(restarts.on_end(killed(seconds(60))).after, seconds(0));
  EXPECT_EQ(restarts.on_end(killed(milliseconds(5))).after, seconds(0));
  EXPECT_EQ(restarts.on_end(killed(milliseconds(5))).after, milliseconds(10));
  EXPECT_EQ(restarts.on_end(killed(milliseconds(5))).after, milliseconds(20));
  for (int i = 0; i < 100; ++i) {
    const ServerVerdict verdict = restarts.on_end(killed(milliseconds(5)));
    EXPECT_TRUE(verdict.again);
    EXPECT_LE(verdict.after, ServerRestarts::kLongestDelay);
  }
  EXPECT_EQ(restarts.on_end(killed(milliseconds(5))).after, ServerRestarts::kLongestDelay);
  EXPECT_EQ(restarts.on_end(killed(ServerRestarts::kShort)).after, seconds(0));
  EXPECT_EQ(restarts.on_end(killed(milliseconds(5))).after, seconds(0));
}

TEST(ServerRestarts, AServerThatFailsAtItsStartAgainAndAgainEndsTheJob) {
  ServerRestarts restarts;
  for (int i = 1; i < ServerRestarts::kMost; ++i)
    EXPECT_TRUE(restarts.on_end(failed(milliseconds(5))).again) << i;
  EXPECT_TRUE(restarts.on_end(failed(seconds(60), true)).again) << "it has served";
  for (int i = 1; i < ServerRestarts::kMost; ++i)
    EXPECT_TRUE(restarts.on_end(failed(milliseconds(5))).again) << i;
  EXPECT_FALSE(restarts.on_end(failed(milliseconds(5))).again);
}

// A slow machine finds a damaged store, or a missing library, only after kShort.
TEST(ServerRestarts, AServerThatNeverServesEndsTheJobHoweverLongItLives) {
  ServerRestarts restarts;
  for (int i = 1; i < ServerRestarts::kMost; ++i)
    EXPECT_TRUE(restarts.on_end(failed(seconds(60))).again) << i;
  EXPECT_FALSE(restarts.on_end(failed(seconds(60))).again);
}

TEST(ServerMemory, IsCutIntoFewSegments) {
  const auto cut = [](std::uint64_t bytes, std::uint32_t shards) {
    return memory_spec({.bytes = bytes, .servers = shards, .most_servers = shards});
  };
  EXPECT_EQ(cut(1 << 30, 1)->segments, 16U);
  EXPECT_EQ(cut(1 << 30, 1)->segment_bytes, collective::ps::kSegmentBytes);
  EXPECT_EQ(cut(1 << 30, 2)->segments, 8U);
  const auto large = cut(64ULL << 30, 1);
  EXPECT_EQ(large->segments, 32U);
  EXPECT_EQ(large->segment_bytes, 2ULL << 30);
  // No byte less than asked for, and less than a block a segment more.
  for (const std::uint64_t bytes :
       {127ULL << 20, (127ULL << 20) + 1, 1000ULL << 20, 100ULL << 30, (1ULL << 37) - 1}) {
    for (const std::uint32_t shards : {1U, 3U}) {
      const auto spec = cut(bytes * shards, shards);
      ASSERT_TRUE(spec.ok()) << spec.status().to_string();
      const std::uint64_t made = spec->segments * spec->segment_bytes;
      EXPECT_GE(made, bytes);
      EXPECT_LT(made, bytes + spec->segments * collective::ps::kBlockBytes);
    }
  }
  const auto widest = cut(62ULL << 37, 62);
  EXPECT_LE(widest->segments * widest->segment_bytes, collective::ps::kMaxStoreBytes);
  const auto wide = cut(64ULL << 30, 64);
  EXPECT_LE(wide->shards * (wide->segments + 1), 250U);
  EXPECT_EQ(cut(1 << 20, 1).status().message(),
            "--ps-memory 1048576: expected 67108864 to 137438953472 bytes for each of 1 server "
            "(--role ps=1), got 1048576");
  EXPECT_EQ(cut(64 << 20, 2).status().message(),
            "--ps-memory 67108864: expected 67108864 to 137438953472 bytes for each of 2 servers "
            "(--role ps=2), got 33554432");
}

TEST(ServerMemory, HasTwoShardsForEachOfTheMostServers) {
  const auto cut = [](std::uint64_t bytes, std::uint32_t least, std::uint32_t most) {
    return memory_spec({.bytes = bytes, .servers = least, .most_servers = most});
  };
  EXPECT_EQ(cut(1 << 30, 2, 4)->shards, 8U);
  EXPECT_EQ(cut(320 << 20, 2, 4)->shards, 5U) << "64 MiB each";
  EXPECT_EQ(cut(1 << 30, 4, 4)->shards, 4U);
  EXPECT_EQ(cut(64ULL << 30, 1, 64)->shards, 64U);
  EXPECT_EQ(cut(1 << 30, 1, 1)->lane_bytes, 16U << 20);
  EXPECT_EQ(cut(1 << 30, 2, 4)->lane_bytes, 10U << 20) << "lanes of a client take less than before";
  EXPECT_EQ(cut(128 << 20, 1, 3).status().message(),
            "--ps-memory 134217728: expected 67108864 to 137438953472 bytes for each of 3 servers "
            "(--role ps=1:3), got 44739242");
  EXPECT_EQ(cut(1 << 30, 1, 65).status().message(), "--role ps=1:65: expected 1 to 64 servers");
}

TEST(ServerMemory, IsRefusedForMoreServersThanShards) {
  for (const std::uint32_t servers : {0U, 65U, 126U, 250U, 251U, 100'000U}) {
    EXPECT_EQ(memory_spec({.bytes = 1ULL << 40, .servers = servers, .most_servers = servers})
                  .status()
                  .message(),
              fmt::format("--role ps={}: expected 1 to 64 servers", servers));
  }
}

TEST(ServerStores, EachHasAsManyServersPlusOrMinusOne) {
  for (std::uint32_t stores = 1; stores < 9; ++stores) {
    for (std::uint32_t servers = stores; servers < 40; ++servers) {
      std::uint32_t sum = 0;
      for (std::uint32_t store = 0; store < stores; ++store) {
        const std::uint32_t has = servers_of_store(servers, stores, store);
        EXPECT_TRUE(has == servers / stores || has == servers / stores + 1);
        EXPECT_LE(has, servers_of_store(servers + 1, stores, store)) << "none leaves for one more";
        sum += has;
      }
      EXPECT_EQ(sum, servers);
    }
  }
}

TEST(ServerStores, TooFewOrTooManyServersForThemAreRefused) {
  const auto cut = [](std::uint32_t least, std::uint32_t most) {
    return memory_spec(
        {.bytes = 1ULL << 30, .store = 1, .stores = 2, .servers = least, .most_servers = most});
  };
  EXPECT_EQ(cut(5, 5)->shards, 2U) << "the second one of two has fewer";
  EXPECT_EQ(cut(2, 4)->shards, 4U) << "two for each of the most";
  EXPECT_EQ(cut(1, 4).status().message(),
            "--role ps=1:4: expected 2 to 128 servers (--ps-hosts 2)");
  EXPECT_EQ(cut(2, 129).status().message(),
            "--role ps=2:129: expected 2 to 128 servers (--ps-hosts 2)");
  EXPECT_EQ(memory_spec({.bytes = 1 << 20, .stores = 2, .servers = 2, .most_servers = 2})
                .status()
                .message(),
            "--ps-memory 1048576: expected 67108864 to 137438953472 bytes for each of 1 server "
            "(--role ps=2, --ps-hosts 2), got 1048576");
}

constexpr seconds kLong{60};

// Servers are a script that says that it is ready, and does not end by itself.
class ParameterServerTest : public testing::Test {
 protected:
  ParameterServerTest() {
    char name[] = "/tmp/regroup-ps-XXXXXX";
    folder_ = ::mkdtemp(name);
    const std::string program = folder_ + "/regroup-ps";
    std::ofstream(program) << "#!/bin/sh\ntrap '' TERM\necho ready\nexec tail -f /dev/null\n";
    EXPECT_EQ(::chmod(program.c_str(), 0700), 0);
  }
  void start(base::Duration hang_timeout,
             std::optional<TableCheckpointOptions> checkpoints = std::nullopt) {
    auto started =
        ParameterServer::start(loop_,
                               {.program = folder_ + "/regroup-ps",
                                .environment = {},
                                .memory_socket = folder_ + "/memory",
                                .status_socket = folder_ + "/status",
                                .resize_socket = folder_ + "/resize",
                                .bytes = 128 << 20,
                                .servers = 1,
                                .most_servers = 2,
                                .hang_timeout = hang_timeout,
                                .checkpoints = std::move(checkpoints)},
                               {.said = [this](const std::string& text) { said_.push_back(text); },
                                .failed = [this](const std::string& why) { failed_ = why; },
                                .over = [this] { return over_; },
                                .loaded = [this](const auto&) { loaded_ = true; }});
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    servers_ = std::move(*started);
  }
  ~ParameterServerTest() override {
    servers_.reset();
    std::filesystem::remove_all(folder_);
  }
  // The server's part of the status; null if it has left.
  [[nodiscard]] nlohmann::json server(std::uint32_t number) const {
    const auto status = nlohmann::json::parse(servers_->status_json());
    for (const auto& one : status["servers"]) {
      if (one["server"] == number) return one;
    }
    return nullptr;
  }

  boost::asio::io_context loop_;
  bool over_ = false;
  std::string failed_;
  bool loaded_ = false;
  std::string folder_;
  std::vector<std::string> said_;
  std::unique_ptr<ParameterServer> servers_;
};

// A timer kills a server that does not leave in time. It must not, once the server has ended: its
// process number is 0 then, the number of the agent's own process group for kill().
TEST_F(ParameterServerTest, AServerThatLeavesHasLeftThoughTheJobIsOver) {
  start(seconds(0));
  ASSERT_TRUE(servers_->resize(2).ok());
  ASSERT_TRUE(transport::run_until(
      loop_, [&] { return !server(1)["shards"].empty(); }, kLong));
  const pid_t pid = server(1)["pid"];
  ASSERT_TRUE(servers_->resize(1).ok());
  EXPECT_EQ(server(1)["pid"], pid) << "it does not leave by itself";
  over_ = true;
  ::kill(pid, SIGKILL);
  EXPECT_TRUE(transport::run_until(
      loop_, [&] { return server(1).is_null(); }, kLong));
  EXPECT_TRUE(said_.empty()) << "a job that is over says nothing about its servers";
}

// The loader is a script that reads until it is let go. No server may touch a store before that.
TEST_F(ParameterServerTest, ServersAreNotResizedWhileTheTablesAreLoaded) {
  const std::string program = folder_ + "/regroup-persist", go = folder_ + "/go";
  std::ofstream(program) << "#!/bin/sh\nuntil [ -e " << go << " ]; do sleep 0.01; done\n";
  ASSERT_EQ(::chmod(program.c_str(), 0700), 0);
  TableCheckpointOptions options;
  options.program = program;
  options.plan.resume = spec::Resume{.path = folder_, .step = 1, .fingerprint = ""};
  start(seconds(0), options);
  EXPECT_EQ(servers_->resize(2).status().message(), "resize ps=2: the job still loads its tables");
  EXPECT_TRUE(server(0).is_null());
  std::ofstream{go};
  ASSERT_TRUE(transport::run_until(
      loop_, [&] { return loaded_; }, kLong));
  EXPECT_TRUE(servers_->resize(2).ok());
}

TEST_F(ParameterServerTest, AServerThatStandsIsReplacedAndOneThatAlwaysDoesEndsTheJob) {
  start(milliseconds(50));
  const pid_t pid = server(0)["pid"];
  ASSERT_TRUE(transport::run_until(
      loop_, [&] { return said_.size() == 1; }, kLong));
  EXPECT_EQ(said_[0], fmt::format("server 0 of the parameter server (pid {}) has stood still for "
                                  "more than 0.05 s in shard 0 (--hang-timeout): killing it and "
                                  "starting the next one on the same tables",
                                  pid));
  ASSERT_TRUE(transport::run_until(
      loop_, [&] { return server(0)["restarts"] == 1; }, kLong));
  EXPECT_NE(server(0)["pid"], pid);
  EXPECT_EQ(server(0)["hangs"], 1);
  ASSERT_TRUE(transport::run_until(
      loop_, [&] { return !failed_.empty(); }, kLong));
  EXPECT_EQ(said_.size(), std::size_t{ServerRestarts::kMost}) << "no line besides for each end";
  EXPECT_THAT(failed_, testing::EndsWith("has hung, 5 times in a row"));
}

}  // namespace
}  // namespace regroup::job
