// What a job answers whose allocation cannot change.
#include "launcher/job/own_allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tests/launcher/job/refused_hosts.h"

namespace regroup::job {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class OwnAllocationAlone : public testing::Test {
 protected:
  static ElasticHostsOptions one_host() {
    ElasticHostsOptions options;
    options.granted = {{.name = "refused", .slots = 4}};
    return options;
  }
  OwnAllocation::Events events() {
    return {.ending = [this] { return ending_; },
            .said = [](const std::string& text) { ADD_FAILURE() << text; },
            .answered =
                [this](lease::GrantId client, const std::string& text, bool ok) {
                  answers_.push_back({client, text + (ok ? "" : "!")});
                },
            .freed = [](lease::GrantId) { ADD_FAILURE() << "no slots were demanded"; }};
  }

  boost::asio::io_context loop_;
  bool ending_ = false;
  std::vector<std::pair<lease::GrantId, std::string>> answers_;
  const std::unique_ptr<agent::Hosts> links_ = refused_host(loop_);
  const HostLeases leases_;
  ElasticHosts hosts_{loop_, one_host(), *links_, {.ending = [] { return false; }}};
  OwnAllocation allocation_{
      loop_, hosts_, leases_, {.notice_grace = std::chrono::seconds(9)}, events()};
};

TEST_F(OwnAllocationAlone, AResizeIsAnsweredAtOnceWithoutAnAllocatorToAsk) {
  allocation_.start();
  allocation_.resize(7, 2);
  allocation_.resize(8, 20);
  ending_ = true;
  allocation_.resize(9, 2);
  EXPECT_THAT(answers_, ElementsAre(std::pair(7U, ""), std::pair(8U, ""), std::pair(9U, "")));
}

TEST_F(OwnAllocationAlone, HostsComeFromOthersAndNeitherGrowNorGoBackWithoutAnAllocator) {
  EXPECT_EQ(allocation_.arrive("12"), OwnAllocation::Origin::kOthers);
  allocation_.cancel_surplus();
  const auto grown = allocation_.grow({{.name = "new", .slots = 1}});
  ASSERT_FALSE(grown.ok());
  EXPECT_THAT(grown.status().message(), HasSubstr("cannot grow"));
  for (const std::uint32_t slots : {1, 4}) {
    const auto demanded =
        allocation_.demand(7, {{}, "scontrol", {{.name = "refused", .slots = slots}}});
    ASSERT_FALSE(demanded.ok());
    EXPECT_THAT(demanded.status().message(), HasSubstr("host refused: this job cannot return it"));
  }
  EXPECT_FALSE(allocation_.demand(7, {{}, "scontrol", {}}).ok());
  EXPECT_TRUE(allocation_.clients().empty());
  EXPECT_TRUE(hosts_.stays(0));
}

}  // namespace
}  // namespace regroup::job
