// The controller of a job over real connections. The test plays the agents, which a fake spawner
// reports as started.
#include "launcher/agent/hosts.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "launcher/agent/wire.h"
#include "tests/launcher/transport/net_test.h"

namespace regroup::agent {
namespace {

using transport::JobSecret;
using transport::run_until;
using transport::SecureChannel;

constexpr proto::NodeId kController = 0, kChild = 1, kBelow = 2;
constexpr std::size_t kPiece = 4 << 20;

// Two hosts; the second is reached through the first.
class NodeHosts : public testing::Test {
 protected:
  NodeHosts() {
    std::string folder = std::filesystem::temp_directory_path() / "hosts_test.XXXXXX";
    folder_ = ::mkdtemp(folder.data());
    std::ofstream(folder_ / "agent")
        << "#!/bin/sh\ncd " << folder_.string()
        << "\necho \"$5\" > new\nmv new endpoints\nexec cat > secret\n";
    std::filesystem::permissions(folder_ / "agent", std::filesystem::perms::owner_all);
    HostsOptions options;
    options.job = "job-1";
    options.build = "1";
    options.hosts = {{"node1"}, {"node2"}};
    options.program = folder_ / "agent";
    options.environment = {{"PATH", "/usr/bin:/bin"}};
    options.ssh = {};
    options.limit = transport::kDeadline;
    options.radix = 1;
    auto made = Hosts::make(loop_, std::move(options), [](const std::string&) {});
    EXPECT_TRUE(made.ok()) << made.status().message();
    hosts_ = std::move(*made);
    EXPECT_TRUE(run_until(loop_, [this] {
      std::error_code none;
      return std::filesystem::exists(folder_ / "endpoints") &&
             std::filesystem::file_size(folder_ / "secret", none) == JobSecret::kMessageBytes;
    }));
    come_up();
  }
  ~NodeHosts() override {
    hosts_.reset();
    std::filesystem::remove_all(folder_);
  }

  void come_up() {
    const base::Fd file(::open((folder_ / "secret").c_str(), O_RDONLY | O_CLOEXEC));
    auto secret = JobSecret::read(file.get(), transport::kDeadline);
    ASSERT_TRUE(secret.ok());
    std::string endpoints;
    std::ifstream(folder_ / "endpoints") >> endpoints;
    const auto port = std::stoul(endpoints.substr(endpoints.rfind(':') + 1));
    auto channel = SecureChannel::client(loop_, transport::node(*secret, kChild),
                                         transport::connect_to(static_cast<std::uint16_t>(port)),
                                         kController, Link::limits());
    ASSERT_TRUE(channel.ok());
    (*channel)->start({.message = {}, .closed = [](const base::Status&) {}});
    child_ = std::make_unique<Link>(
        *channel, Link::Handlers{[this](const Message& message) { take(message); },
                                 [](const base::Status&) {}});
    child_->send(Hello{"1", "node1", 1, 0});
    child_->send(ChildEvent{ChildEvent::Kind::kConnected, kBelow, "10.0.0.2"});
    child_->send(Relayed{{kBelow}, encode(Hello{"1", "node2", 1, 0}), false, {1}});
    ASSERT_TRUE(run_until(loop_, [this] { return hosts_->is_up(0) && hosts_->is_up(1); }));
  }

  void take(const Message& message) {
    const auto* relayed = std::get_if<Relayed>(&message);
    if (relayed == nullptr || relayed->numbers.empty()) return;
    heard_ = relayed->numbers.back();
  }

  // Sends more to all agents than is kept without an acknowledgement; stops when the second agent
  // is lost.
  void tell_all(bool answers) {
    for (std::uint64_t i = 1;
         i <= ReliableSession::kMaxUnackedBytes / kPiece + 2 && hosts_->is_up(1); ++i) {
      hosts_->tell_membership({0, proto::JobDone{0, std::string(kPiece, 'x')}, proto::kEveryNode});
      ASSERT_TRUE(run_until(loop_, [&] { return heard_ == i || !hosts_->is_up(1); }));
      child_->send(Heartbeat{});  // sending 256 MiB takes longer than the silence limit
      if (answers) child_->send(Relayed{{kBelow}, encode(Ack{heard_}), false, {0}});
    }
  }

  std::filesystem::path folder_;
  boost::asio::io_context loop_;
  std::unique_ptr<Hosts> hosts_;
  std::unique_ptr<Link> child_;
  std::uint64_t heard_ = 0;  // last number sent to the second agent
};

TEST_F(NodeHosts, AnAgentThatNeverAcknowledgesIsGivenUp) {
  tell_all(false);
  EXPECT_FALSE(hosts_->is_up(1));
  EXPECT_TRUE(hosts_->is_up(0));
  const auto failures = hosts_->bring_up();
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].message(), "host node2: its agent does not acknowledge messages");
}

TEST_F(NodeHosts, AnAgentThatAcknowledgesGetsAnyNumberOfMessages) {
  tell_all(true);
  EXPECT_TRUE(hosts_->is_up(1));
  EXPECT_THAT(hosts_->bring_up(), testing::IsEmpty());
}

TEST_F(NodeHosts, AnAgentThatExitsBeforeTheJobIsReported) {
  std::vector<std::string> said;
  static_cast<void>(hosts_->bring_up(
      {.failed = [&](const base::Status& why) { said.push_back(why.message()); }}));
  child_->send(Relayed{{kBelow}, encode(Done{}), false, {2}});
  EXPECT_TRUE(run_until(loop_, [this] { return !hosts_->is_up(1); }));
  EXPECT_THAT(said, testing::ElementsAre("host node2: its agent exited before the job began"));
}

}  // namespace
}  // namespace regroup::agent
