// An agent of another host is believed about members that were started there, and no others.
#include "launcher/agent/remote_node.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launcher/agent/wire.h"
#include "launcher/process/sink.h"

namespace regroup::agent {
namespace {

class RemoteNodeTest : public ::testing::Test {
 protected:
  RemoteNodeTest() {
    node_.attach("10.0.0.2");
    node_.receive(Hello{"1", "evil", 1, 4000});
    agent::NodeEvents events;
    events.started = [this](std::uint32_t space, const base::Status& status) {
      started_.emplace_back(space, status.message());
    };
    events.exited = [this](const process::MemberExit& exit) { exits_.push_back(exit); };
    events.mpi = [this](std::uint32_t, const pmi::Message& message) { mpi_.push_back(message); };
    events.used = [this](const std::string& host, const std::string&, const auto& lives) {
      used_ = host + (lives(7) ? " 7" : "") + (lives(8) ? " 8" : "");
    };
    node_.serve(1, std::move(events), out_, out_);
    agent::SpaceOrder order;
    order.space.space = 3;
    order.members.resize(1);
    order.members[0].place.member = 7;
    order.members[0].place.rank = 2;
    node_.start(order);
  }

  boost::asio::io_context loop_{1};
  process::Sink out_{loop_, 1};
  std::vector<std::pair<std::uint32_t, std::string>> started_;
  std::vector<process::MemberExit> exits_;
  std::vector<pmi::Message> mpi_;
  std::string used_;
  std::vector<proto::Body> facts_;
  std::string noticed_;
  base::Status ended_;
  RemoteNode node_{
      loop_,
      "node2",
      "1",
      {.send = [](const Message&) {},
       .up = [] {},
       .ended = [this](const base::Status& why) { ended_ = why; },
       .membership = [this](const proto::Message& message) { facts_.push_back(message.body); },
       .noticed = [this](const HostNotice& notice) { noticed_ = notice.why; }}};
};

TEST_F(RemoteNodeTest, AcceptsExitsOfOrderedRanksOnly) {
  node_.receive(SpaceStarted{3, {}});
  node_.receive(Exited{{.member = 8, .rank = 0}});  // another's
  EXPECT_TRUE(exits_.empty());
  node_.receive(Exited{{.member = 7, .rank = 4'000'000'000, .code = 5, .host = "node9"}});
  node_.receive(Exited{{.member = 7, .rank = 1}});
  ASSERT_EQ(exits_.size(), 1U);
  EXPECT_EQ(exits_[0].rank, 2U);
  EXPECT_EQ(exits_[0].host, "node2");
  EXPECT_EQ(exits_[0].code, 5);
}

TEST_F(RemoteNodeTest, AcceptsStartsInOrderedSpacesOnly) {
  node_.receive(SpaceStarted{4, {}});
  EXPECT_TRUE(started_.empty());
  node_.receive(SpaceStarted{3, {base::Code::kNotFound, "no such\nregroup: forged"}});
  ASSERT_EQ(started_.size(), 1U);
  EXPECT_EQ(started_[0].second, "host node2: no such?regroup: forged");
}

TEST_F(RemoteNodeTest, MakesOneLineOfARanksMessage) {
  node_.receive(Services{pmi::Aborted{{3, 2}, 1, "\x1b[2J\nregroup: forged"}});
  ASSERT_EQ(mpi_.size(), 1U);
  EXPECT_EQ(std::get<pmi::Aborted>(mpi_[0]).message, "?[2J?regroup: forged");
}

// A line of another host, an escape sequence of C0 and one of C1, and invalid UTF-8.
TEST_F(RemoteNodeTest, EscapesControlCharactersInAnAgentsMessage) {
  const std::string forged =
                        "a\nregroup: forged\x1b[2J\xc2\x9b"
                        "2J\xff",
                    fit = "a?regroup: forged?[2J??2J?";
  const proto::Join join{.member = 7, .model = forged, .fingerprint = forged};
  for (proto::Body body :
       {proto::Body(proto::MemberLost{.member = 7, .why = forged}),
        proto::Body(proto::PeerSuspect{7, forged}),
        proto::Body(proto::TargetStatus{1, 7, 5, forged}),
        proto::Body(proto::SourceStatus{1, 5, forged, forged}),
        proto::Body(proto::MemberReady{0, join}), proto::Body(proto::HelloReply{1, 0, {}, join}),
        proto::Body(proto::CarrierLost{1, forged})})
    node_.receive(Membership{{1, std::move(body), 0}});
  ASSERT_EQ(facts_.size(), 7U);
  EXPECT_EQ(std::get<proto::MemberLost>(facts_[0]).why, fit);
  EXPECT_EQ(std::get<proto::PeerSuspect>(facts_[1]).why, fit);
  EXPECT_EQ(std::get<proto::TargetStatus>(facts_[2]).why, fit);
  EXPECT_EQ(std::get<proto::SourceStatus>(facts_[3]), (proto::SourceStatus{1, 5, fit, fit}));
  EXPECT_EQ(std::get<proto::MemberReady>(facts_[4]).join.model, fit);
  EXPECT_EQ(std::get<proto::HelloReply>(facts_[5]).declared->fingerprint, fit);
  EXPECT_EQ(std::get<proto::CarrierLost>(facts_[6]).why, fit);
  node_.receive(HostNotice{5, forged});
  EXPECT_EQ(noticed_, fit);
}

TEST_F(RemoteNodeTest, AttributesUsageToTheMembersOnThatHost) {
  node_.receive(UsageReport{"{}"});
  EXPECT_EQ(used_, "node2");
  node_.receive(SpaceStarted{3, {}});
  node_.receive(UsageReport{"{}"});
  EXPECT_EQ(used_, "node2 7");
}

TEST_F(RemoteNodeTest, AStoreIsStartedOnceAndItsEndNamesTheHost) {
  std::vector<StoreStarted> starts;
  std::vector<std::string> ends;
  const auto start = [&] {
    node_.start_store(
        {}, [&](const StoreStarted& one) { starts.push_back(one); },
        [&](const std::string& why) { ends.push_back(why); });
  };
  node_.receive(StoreStarted{{}, "tcp,x", "/x"});
  EXPECT_TRUE(starts.empty()) << "nobody asked";
  start();
  node_.receive(StoreStarted{base::unavailable("no \x1b memory"), "", ""});
  node_.receive(StoreStarted{{}, "tcp,x", "/x"});
  ASSERT_EQ(starts.size(), 1U);
  EXPECT_EQ(starts[0].status.message(), "host node2: no ? memory");
  start();
  node_.receive(StoreStarted{{}, "tcp,x", "/x"});
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[1].address, "tcp,x");
  node_.receive(StoreFailed{"this host ends: SIGTERM"});
  node_.receive(StoreFailed{"again"});
  EXPECT_EQ(ends, std::vector<std::string>{"host node2: this host ends: SIGTERM"});
}

TEST_F(RemoteNodeTest, ALostHostAnswersForItsStore) {
  std::vector<std::string> said;
  const auto then = [&](const base::Result<std::string>& reply) {
    said.push_back(reply.ok() ? *reply : reply.status().message());
  };
  bool failed = false;
  node_.start_store(
      {}, [&](const StoreStarted& one) { said.push_back(one.status.message()); },
      [&](const std::string&) { failed = true; });
  node_.query_store({}, then);
  node_.query_store({.servers = 2}, then);
  node_.receive(StoreReply{2, base::invalid_argument("a range"), ""});
  node_.receive(StoreReply{2, {}, "twice"});
  node_.receive(StoreReply{9, {}, "nobody asked"});
  EXPECT_EQ(said, std::vector<std::string>{"host node2: a range"});
  node_.fail(base::peer_lost("host node2: gone"));
  node_.query_store({}, then);
  EXPECT_EQ(said,
            (std::vector<std::string>{"host node2: a range", "host node2: gone", "host node2: gone",
                                      "host node2: its agent is not running"}));
  EXPECT_FALSE(failed) << "`ended` tells of the host";
}

// No member of the host need run: those of the others have lost the tables.
TEST_F(RemoteNodeTest, AnAgentThatLeavesUntoldIsALostHostIfItHasAStore) {
  for (const bool told : {false, true}) {
    base::Status ended = base::data_loss("has not ended");
    RemoteNode node(loop_, "node3", "1",
                    {.send = [](const Message&) {},
                     .up = [] {},
                     .ended = [&](const base::Status& why) { ended = why; }});
    node.attach("10.0.0.3");
    node.receive(Hello{"1", "three", 1, 4000});
    node.start_store(
        {}, [](const StoreStarted&) {}, [](const std::string&) {});
    node.receive(StoreStarted{{}, "tcp,x", "/x"});
    std::string said;
    node.query_store({}, [&](const auto& reply) { said = reply.status().message(); });
    if (told) node.finish();
    node.receive(Done{});
    EXPECT_EQ(ended.to_string(), told ? base::Status().to_string()
                                      : base::peer_lost("host node3: its agent has exited, and "
                                                        "with it its store")
                                            .to_string());
    EXPECT_EQ(said, told ? "host node3: its agent has exited" : ended.message());
  }
}

}  // namespace
}  // namespace regroup::agent
