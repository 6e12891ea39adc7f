// The agent and connections of processes that are no members.
#include "launcher/job/elastic_agent.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>

#include "launcher/agent/control_message.h"
#include "launcher/transport/unix_socket.h"

namespace regroup::job {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kTimeout{20};
constexpr milliseconds kJoinDeadline{60};

class ElasticAgentTest : public testing::Test {
 protected:
  ElasticAgentTest() {
    char name[] = "/tmp/agent-XXXXXX";
    folder_ = ::mkdtemp(name);
    auto sockets = agent::control_sockets();
    EXPECT_TRUE(sockets.ok());
    guardian_ = std::move(sockets->first);
    agent_.emplace(
        loop_, agent::AgentOptions{}, std::move(sockets->second), [this](agent::Agent& agent) {
          ElasticAgentOptions options{
              .socket = folder_ + "/agent", .quiet = true, .join_deadline = kJoinDeadline};
          auto job = std::make_unique<ElasticAgent>(agent, std::move(options));
          job_ = job.get();
          return job;
        });
    const base::Status status = job_->start();
    EXPECT_TRUE(status.ok()) << status.message();
  }
  ~ElasticAgentTest() override {
    agent_.reset();
    std::filesystem::remove_all(folder_);
  }

  base::Fd connect() {
    auto socket = transport::connect_unix(folder_ + "/agent");
    EXPECT_TRUE(socket.ok());
    return std::move(*socket);
  }
  // Lets the agent work until the other side of `socket` is closed.
  bool closes(const base::Fd& socket) {
    const auto end = std::chrono::steady_clock::now() + kTimeout;
    pollfd poll{socket.get(), POLLIN, 0};
    while (::poll(&poll, 1, 0) == 0 && std::chrono::steady_clock::now() < end) {
      agent_->loop().run_one_for(milliseconds(100));
    }
    char byte = 0;
    return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }

  std::string folder_;
  base::Fd guardian_;
  boost::asio::io_context loop_{1};
  std::optional<agent::Agent> agent_;
  ElasticAgent* job_ = nullptr;  // agent_'s
};

TEST_F(ElasticAgentTest, AConnectionThatNeverJoinsIsClosedAtItsDeadline) {
  const auto begin = std::chrono::steady_clock::now();
  const base::Fd first = connect();
  const base::Fd second = connect();
  EXPECT_TRUE(closes(first));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kJoinDeadline);
  EXPECT_TRUE(closes(second));
}

}  // namespace
}  // namespace regroup::job
