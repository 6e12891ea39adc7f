// What the hosts of an elastic job report when agents do not start and hosts are demanded.
#include "launcher/job/elastic_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/launcher/job/refused_hosts.h"

namespace regroup::job {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class ElasticHostsAlone : public testing::Test {
 protected:
  static ElasticHostsOptions one_host() {
    ElasticHostsOptions options;
    options.granted = {{.name = "refused", .slots = 4}};
    return options;
  }
  ElasticHosts::Events events() {
    return {.ending = [this] { return ending_; },
            .said = [this](const std::string& text) { said_.push_back(text); },
            .changed = [](const proto::NodeUp&) { FAIL() << "no host is up"; },
            .lost = [this](const proto::NodeLost& lost) { lost_.push_back(lost.why); },
            .not_started =
                [this](std::size_t, const std::string& why) {
                  not_started_.push_back(why);
                  return leased_;
                },
            .left =
                [this](std::size_t host, HostStage before, const std::string& how) {
                  left_.push_back(std::to_string(host) + " " + how);
                  before_ = before;
                }};
  }

  boost::asio::io_context loop_;
  bool ending_ = false, leased_ = false;
  std::vector<std::string> said_, lost_, not_started_, left_;
  HostStage before_ = HostStage::kStays;
  const std::unique_ptr<agent::Hosts> links_ = refused_host(loop_);
  ElasticHosts hosts_{loop_, one_host(), *links_, events()};
};

TEST_F(ElasticHostsAlone, AHostWhoseAgentDoesNotStartStaysInTheJob) {
  hosts_.start();
  hosts_.lost(0, base::peer_lost("no route"));
  EXPECT_THAT(not_started_, ElementsAre("no route"));
  EXPECT_THAT(lost_, ElementsAre("no route"));
  EXPECT_THAT(said_, IsEmpty());  // the start of the job has reported it
  EXPECT_THAT(left_, IsEmpty());
  EXPECT_EQ(hosts_.find("refused"), 0U);
  EXPECT_TRUE(hosts_.stays(0));
  EXPECT_FALSE(hosts_.any_stays());  // it is not up
  EXPECT_EQ(hosts_.node_up(0).slots, 4U);
}

TEST_F(ElasticHostsAlone, AHostThatIsDemandedLeavesAtOnceIfItIsNotUp) {
  hosts_.start();
  hosts_.demand(0, std::chrono::seconds(10), "notice");
  EXPECT_THAT(said_, ElementsAre("host refused must be returned within 10 s (notice)"));
  EXPECT_THAT(left_, ElementsAre("0 host refused was returned"));
  EXPECT_EQ(before_, HostStage::kDraining);
  EXPECT_EQ(hosts_.find("refused"), std::nullopt);
  EXPECT_EQ(hosts_.node_up(0).slots, 0U);
  hosts_.demand(0, std::chrono::seconds(5), "notice");
  hosts_.ended(0);
  EXPECT_EQ(left_.size(), 1U);
  EXPECT_EQ(said_.size(), 1U);
}

TEST_F(ElasticHostsAlone, AHostThatIsReturnedLeavesTowardsItsProvider) {
  for (const bool to_allocator : {true, false}) {
    const std::size_t host = links_->size();
    hosts_.add({.name = "refused", .slots = 2}, refused_access(loop_), !to_allocator);
    hosts_.set_slots(host, 3, true);
    EXPECT_EQ(hosts_.given_slots(host), 3U);
    EXPECT_EQ(hosts_.node_up(host).leased, !to_allocator);
    EXPECT_TRUE(hosts_.node_up(host).for_now);
    loop_.poll();  // its start fails
    hosts_.return_idle(host, std::chrono::seconds(10), to_allocator);
    EXPECT_EQ(said_.back(), "host refused is no longer needed");
    EXPECT_EQ(before_, to_allocator ? HostStage::kReturning : HostStage::kDraining);
  }
  EXPECT_EQ(left_.size(), 2U);
}

TEST_F(ElasticHostsAlone, NothingIsDrainedWhileTheJobIsBeingEnded) {
  ending_ = true;
  hosts_.demand(0, std::chrono::seconds(10), "notice");
  hosts_.suspend(0, std::chrono::seconds(10), "file");
  EXPECT_TRUE(hosts_.stays(0));
  EXPECT_THAT(said_, IsEmpty());
}

}  // namespace
}  // namespace regroup::job
