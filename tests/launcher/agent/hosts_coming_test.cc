// How the controller waits for its hosts: what it reports, when, and for how long. The fake spawner
// starts no agent.
#include <gmock/gmock.h>

#include "launcher/agent/fake_spawner.h"
#include "launcher/agent/hosts.h"

namespace regroup::agent {
namespace {

using agent::FakeSpawner;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

constexpr milliseconds kLimit{500};
constexpr milliseconds kEarlyBy{5};  // clocks are read one after the other

class NodeHostsComing : public testing::Test {
 protected:
  using Clock = std::chrono::steady_clock;
  // "refused" fails at once, "hung" at the limit, "queued" takes long.
  void make(const std::vector<std::string>& names) {
    HostsOptions options;
    options.job = "job-1";
    options.build = "1";
    options.limit = kLimit;
    HostAccess access;
    access.before = {"fake"};
    access.make = [this](auto, agent::SpawnEvents events) {
      auto fake = std::make_unique<FakeSpawner>(loop_, std::move(events),
                                                agent::FakeSpawnerOptions{.limit = seconds(60)});
      fake->fail("refused", {base::Code::kUnavailable, "refused: nobody is let in"});
      fake->delay("queued", base::Duration::max());
      return fake;
    };
    for (const std::string& name : names) options.hosts.push_back({.name = name, .access = access});
    auto made = Hosts::make(loop_, std::move(options), [](const std::string&) {});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    hosts_ = std::move(*made);
  }
  boost::asio::io_context loop_;
  std::unique_ptr<Hosts> hosts_;
};

TEST_F(NodeHostsComing, ReportsAFailedHostWhileOthersConnect) {
  make({"refused", "hung"});
  std::vector<std::string> said;
  std::vector<bool> other;
  const auto failures = hosts_->bring_up({.failed = [&](const base::Status& why) {
    said.push_back(why.message().substr(0, why.message().find(':')));
    other.push_back(hosts_->is_coming(1));
  }});
  EXPECT_THAT(said, ElementsAre("host refused", "host hung"));
  EXPECT_THAT(other, ElementsAre(true, false));
  EXPECT_EQ(failures.size(), 2U);
}

TEST_F(NodeHostsComing, WithEnoughHostsTheOthersHaveOneLimit) {
  make({"refused", "queued"});
  const auto began = Clock::now();
  const auto failures = hosts_->bring_up({.enough = [] { return true; }});
  EXPECT_EQ(failures.size(), 1U);
  EXPECT_TRUE(hosts_->is_coming(1));
  EXPECT_GE(Clock::now() - began, kLimit - kEarlyBy);
  EXPECT_LT(Clock::now() - began, kLimit + seconds(4));
}

TEST_F(NodeHostsComing, WithTooFewHostsTheOthersHaveLonger) {
  make({"queued"});
  const auto began = Clock::now();
  const auto over = [&] { return Clock::now() - began > 4 * kLimit; };
  EXPECT_THAT(hosts_->bring_up({.over = over, .enough = [] { return false; }}), testing::IsEmpty());
  EXPECT_TRUE(hosts_->is_coming(0));
  EXPECT_GE(Clock::now() - began, 4 * kLimit);
}

}  // namespace
}  // namespace regroup::agent
