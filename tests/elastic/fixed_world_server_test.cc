// The World that a rank serves ends for the waiting ranks when another rank can never join.
#include "elastic/fixed_world_server.h"
#include "base/clock.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <variant>

#include "elastic/agent_link.h"

namespace regroup::elastic {
namespace {

base::TimePoint half_a_minute() { return base::SystemClock().now() + std::chrono::seconds(30); }

class FixedWorldServerTest : public ::testing::Test {
 protected:
  void serve() {
    auto server = FixedWorldServer::start(options_);
    ASSERT_TRUE(server.ok() && *server) << server.status().message();
    server_ = std::move(*server);
  }

  AgentLink join(proto::MemberId rank) {
    auto link = AgentLink::connect_to_rank(options_.name);
    EXPECT_TRUE(link.ok()) << link.status().message();
    proto::Join declaration;
    declaration.member = rank;
    declaration.elements = 8;
    declaration.element_bytes = 4;
    declaration.state_bytes = 32;
    EXPECT_TRUE(link->send(std::move(declaration)).ok());
    const auto welcome = link->receive(half_a_minute(), &memfd_);
    EXPECT_TRUE(welcome.ok() && std::holds_alternative<proto::Welcome>(welcome->body));
    return std::move(*link);
  }

  static std::string refusal(AgentLink& link) {
    const auto answer = link.receive(half_a_minute());
    const auto* refused = answer.ok() ? std::get_if<proto::Refused>(&answer->body) : nullptr;
    return refused != nullptr ? refused->reason : answer.status().message();
  }

  FixedWorldServerOptions options_{.name = fmt::format("regroup-world-server-test-{}", ::getpid())};
  std::unique_ptr<FixedWorldServer> server_;
  base::Fd memfd_;
};

TEST_F(FixedWorldServerTest, AProcessThatEndsBetweenItsConnectionAndItsJoinIsNamed) {
  serve();
  AgentLink waits = join(0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto link = AgentLink::connect_to_rank(options_.name);
    ::_exit(link.ok() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(refusal(waits),
            fmt::format("process {} ended in join(): the World of 2 cannot form", child));
}

TEST_F(FixedWorldServerTest, AProcessThatOnlyConnectsChangesNothing) {
  serve();
  AgentLink waits = join(0);
  { const auto looks = AgentLink::connect_to_rank(options_.name); }
  AgentLink other = join(1);
  EXPECT_TRUE(waits.send(proto::Ready{}).ok() && other.send(proto::Ready{}).ok());
  EXPECT_EQ(waits.receive(base::SystemClock().now() + std::chrono::milliseconds(300)).code(),
            base::Code::kDeadlineExceeded);
}

TEST_F(FixedWorldServerTest, ARankWhoseProcessHasEndedIsNamed) {
  options_.scan_ranks = [] { return RankScan{{{0, 10}}, {10}, false, RankScan::Started::kAll}; };
  serve();
  AgentLink waits = join(0);
  EXPECT_EQ(refusal(waits), "rank 1 has ended, and 1 of 2 ranks waits in join() for it");
}

}  // namespace
}  // namespace regroup::elastic
