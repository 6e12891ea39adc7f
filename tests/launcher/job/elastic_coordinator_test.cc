// The coordinator's process when its link to the agent breaks, and when its disk is full.
#include "launcher/job/elastic_coordinator.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "launcher/transport/channel.h"

namespace regroup::job {
namespace {

class ElasticCoordinator : public testing::Test {
 protected:
  ElasticCoordinator() {
    char name[] = "/tmp/coordinator-XXXXXX";
    folder_ = ::mkdtemp(name);
    std::array<int, 2> fds{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
    ours_.reset(fds[0]);
    agent_.reset(fds[1]);
  }
  ~ElasticCoordinator() override { std::filesystem::remove_all(folder_); }
  int run(std::uint32_t max_restarts) {
    CoordinatorOptions options{.policy = {.min = 1, .max = 1, .target = 1, .slots = 1},
                               .job = {.id = "job"},
                               .files = {folder_},
                               .quiet = true};
    options.policy.relaunch.max_restarts = max_restarts;
    return run_coordinator(options, std::move(ours_), 1);
  }
  // The agent of one member that exits with status 3; the exit status of the job, if it ever hears
  // of it.
  std::optional<std::int32_t> serve() {
    boost::asio::io_context loop;
    std::optional<std::int32_t> result;
    std::shared_ptr<transport::Channel> channel;
    channel = std::make_shared<transport::Channel>(
        loop, std::move(agent_),
        [&](const proto::Message& message) {
          if (const auto* start = std::get_if<proto::Start>(&message.body)) {
            channel->send(
                {1, proto::MemberLost{.member = start->member, .exit_code = 3, .reaped = true}});
          } else if (const auto* done = std::get_if<proto::JobDone>(&message.body)) {
            result = done->exit_code;
            loop.stop();
          }
        },
        [&](const base::Status&) { loop.stop(); });
    channel->start();
    loop.run_for(std::chrono::seconds(20));
    channel->close();
    return result;
  }
  std::string folder_;
  base::Fd ours_, agent_;
};

TEST_F(ElasticCoordinator, AsksForARestartWhenTheLinkIsLost) {
  agent_.reset();
  EXPECT_EQ(run(0), 1);
}

// Two intents fit into the journal, and no sentence.
TEST_F(ElasticCoordinator, GoesOnWithoutASentenceThatCannotBeWritten) {
  constexpr rlim_t kFileHead = 8, kIntent = 16 + 32;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{kFileHead + 2 * kIntent + 10, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  std::optional<std::int32_t> result;
  std::thread agent([&] { result = serve(); });
  EXPECT_EQ(run(0), 1);
  agent.join();
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  (void)std::signal(SIGXFSZ, handler);
  EXPECT_EQ(result, 3);
  EXPECT_EQ(std::filesystem::file_size(JobFiles{folder_}.journal()), kFileHead + 2 * kIntent);
}

}  // namespace
}  // namespace regroup::job
