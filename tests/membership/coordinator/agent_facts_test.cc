// What an agent that has the secret may say, and what is not heard: docs/guide/security.md. Host b
// means harm.
#include "membership/coordinator/agent_facts.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "membership/coordinator/coordinator.h"

namespace regroup::membership {
namespace {

using proto::Phase, proto::Position;
using testing::ElementsAre, testing::HasSubstr;

constexpr proto::NodeId kA = 1, kB = 2, kC = 3;
constexpr proto::MemberId kLastId = std::numeric_limits<proto::MemberId>::max();

template <class B>
std::vector<std::pair<proto::NodeId, B>> told(const Effects& effects) {
  std::vector<std::pair<proto::NodeId, B>> out;
  for (const Effect& effect : effects) {
    const auto* send = std::get_if<ToAgent>(&effect);
    const auto* body = send == nullptr ? nullptr : std::get_if<B>(&send->body);
    if (body != nullptr) out.emplace_back(send->node, *body);
  }
  return out;
}

// A job on three hosts of one slot each, as many members as `target`.
class AgentFactsTest : public testing::Test {
 protected:
  Effects begin(std::uint32_t target, JournaledState past = {},
                proto::Incarnation incarnation = 1) {
    incarnation_ = incarnation;
    Policy policy{.min = 1, .max = 3, .target = target, .shards = 2};
    policy.kept_results = 4;
    JobInfo job{.id = "job"};
    job.nodes.clear();
    coordinator_.emplace(policy, job, incarnation, std::move(past));
    (void)coordinator_->tick(now_);
    for (const proto::NodeId node : {kA, kB, kC})
      (void)from(node, proto::NodeUp{node, name(node), 1});
    return from(kA, proto::NodesKnown{});
  }
  // Members 0, 1 ... on hosts a, b ...; World 1 is of them.
  void run(std::uint32_t members) {
    ASSERT_EQ(told<proto::Start>(begin(members)).size(), members);
    for (proto::MemberId id = 0; id < members; ++id) (void)from(id + 1, ready(id));
    ASSERT_EQ(coordinator_->world().size(), members) << status();
    (void)coordinator_->tick(now_);  // its first Query
  }
  // An incarnation that finds World 3, of members 4 on a and 5 on b.
  void restart(proto::MemberId promised = 0, std::uint32_t target = 2) {
    JournaledState past;
    past.world =
        proto::World{.incarnation = 1,
                     .generation = 3,
                     .resume = Position::of(7),
                     .shards = 2,
                     .members = {{.id = 4, .slot_id = {kA, 0}}, {.id = 5, .slot_id = {kB, 0}}},
                     .plan = {{kA, 0}, {kB, 0}}};
    past.intent =
        Intent{.began = now_, .target = target, .desired = target, .next_member = promised};
    ASSERT_EQ(told<proto::Hello>(begin(2, std::move(past), 2)).size(), 1U);
  }
  Effects from(proto::NodeId node, proto::Body body) {
    return coordinator_->handle(now_, {Sender::Kind::kAgent, node},
                                {incarnation_, std::move(body), node});
  }
  static proto::MemberReady ready(proto::MemberId id, proto::SlotIndex slot = 0) {
    return {slot, {.member = id, .elements = 1, .model = "m"}};
  }
  static proto::SlotReport slot_report(proto::MemberId id, proto::SlotIndex slot = 0) {
    return {.member = id, .slot = slot, .state = {Phase::kOpen, false, 3, Position::of(8)}};
  }
  static std::string name(proto::NodeId node) {
    return std::string(1, static_cast<char>('a' + node - 1));
  }
  std::string status() const { return coordinator_->status_json(now_); }

  // Those that live, and the host of each.
  std::map<proto::MemberId, proto::NodeId> members() const {
    std::map<proto::MemberId, proto::NodeId> out;
    const auto json = nlohmann::json::parse(status());
    for (const auto& member : json["members"]) out[member["id"]] = member["node"];
    return out;
  }
  // Losses are answered after a while.
  Effects later() {
    now_ += std::chrono::seconds(10);
    return coordinator_->tick(now_);
  }

  // Hosts that are given up while so much time passes, a second at a time.
  std::vector<std::pair<proto::NodeId, proto::NodeLost>> given_up_within(int seconds) {
    std::vector<std::pair<proto::NodeId, proto::NodeLost>> out;
    for (int i = 0; i < seconds; ++i) {
      now_ += std::chrono::seconds(1);
      for (auto& lost : told<proto::NodeLost>(coordinator_->tick(now_)))
        out.push_back(std::move(lost));
    }
    return out;
  }

  base::TimePoint now_{std::chrono::seconds(5)};
  proto::Incarnation incarnation_ = 1;
  std::optional<Coordinator> coordinator_;
};

TEST_F(AgentFactsTest, OfMembersThatNobodyStartedNothingIsHeard) {
  run(2);
  const std::string before = status();
  const auto all = [&](proto::MemberId id) {
    EXPECT_TRUE(
        from(kB, proto::MemberLost{.member = id, .joined = true, .signal = 9, .reaped = true})
            .empty());
    EXPECT_TRUE(from(kB, proto::MemberDrained{id}).empty());
    EXPECT_TRUE(from(kB, ready(id)).empty());
    EXPECT_TRUE(from(kB, proto::TargetStatus{1, id, 9, ""}).empty());
  };
  all(kLastId);
  for (proto::MemberId id = 100; id < 1100; ++id) all(id);
  EXPECT_EQ(status(), before);
  (void)from(kA, proto::MemberLost{.member = 0, .joined = true, .signal = 9, .reaped = true});
  const auto started = told<proto::Start>(later());
  ASSERT_EQ(started.size(), 1U);
  EXPECT_EQ(started[0].second.member, 2U);
}

TEST_F(AgentFactsTest, ANewIncarnationHearsOfMembersThatTheJournalHasPromised) {
  restart(8, 3);
  const auto unjoined = [](proto::MemberId id) { return slot_report(id, proto::kNoSlot); };
  (void)from(
      kA, proto::HelloReply{3, 0, {slot_report(4), unjoined(7), unjoined(8), unjoined(kLastId)}});
  (void)from(kB, proto::HelloReply{3, 0, {slot_report(5), slot_report(4), unjoined(7)}});
  (void)from(kC, proto::HelloReply{3, 0, {}});
  const std::map<proto::MemberId, proto::NodeId> known{{4, kA}, {5, kB}, {7, kA}};
  EXPECT_EQ(members(), known);
  (void)from(kB, proto::MemberLost{.member = 7, .signal = 9, .reaped = true});
  EXPECT_EQ(members(), known);
}

TEST_F(AgentFactsTest, ANumberIsNeverGivenTwice) {
  restart(kLastId);
  (void)from(kA, proto::HelloReply{3, 0, {slot_report(4)}});
  (void)from(kB, proto::HelloReply{3, 0, {slot_report(5)}});
  const auto last = told<proto::Start>(from(kC, proto::HelloReply{3, 0, {}}));
  ASSERT_TRUE(last.empty());  // nobody is missing
  const auto lost = [](proto::MemberId id) {
    return proto::MemberLost{.member = id, .joined = true, .signal = 9, .reaped = true};
  };
  (void)from(kA, lost(4));
  const auto started = told<proto::Start>(later());
  ASSERT_EQ(started.size(), 1U);
  EXPECT_EQ(started[0].second.member, kLastId);
  const auto done = told<proto::JobDone>(from(started[0].first, lost(kLastId)));
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second.reason, "no member ID is left");
  EXPECT_TRUE(done[0].second.save_state);  // member 5 has it
}

TEST_F(AgentFactsTest, PeerAddressesAreOfTheMembersOfTheHostThatSpeaks) {
  run(2);
  const proto::MemberAddress first{0, {std::byte{1}}}, second{1, {std::byte{2}}},
      forged{0, {std::byte{3}}};
  EXPECT_TRUE(told<proto::PeerAddresses>(from(kA, proto::PeerAddresses{1, {first}})).empty());
  const auto all = told<proto::PeerAddresses>(
      from(kB, proto::PeerAddresses{1, {second, forged, {kLastId, {}}}}));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_THAT(all[0].second.members, ElementsAre(first, second));
}

// A frame has its limit, and what agents are told must fit in one.
TEST_F(AgentFactsTest, ALongAddressGoesAlone) {
  run(2);
  const proto::MemberAddress first{0, std::vector<std::byte>(255 << 10)},
      second{1, std::vector<std::byte>(900 << 10)};
  (void)from(kA, proto::PeerAddresses{1, {first}});
  const auto all = told<proto::PeerAddresses>(from(kB, proto::PeerAddresses{1, {second}}));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_THAT(all[0].second.members, ElementsAre(first));
  EXPECT_THAT(all[1].second.members, ElementsAre(second));
}

TEST_F(AgentFactsTest, WhoHasHeardOfAGenerationThatIsInNoJournalIsGivenUp) {
  for (const proto::HelloReply& reply :
       {proto::HelloReply{proto::kMaxGeneration, 0, {slot_report(5)}},
        proto::HelloReply{3, 20, {slot_report(5)}}}) {
    restart();
    (void)from(kA, proto::HelloReply{3, 0, {slot_report(4)}});
    (void)from(kC, proto::HelloReply{3, 0, {}});
    const auto given_up = told<proto::NodeLost>(from(kB, reply));
    ASSERT_EQ(given_up.size(), 1U);
    EXPECT_EQ(given_up[0].first, kB);
    EXPECT_THAT(given_up[0].second.why,
                HasSubstr("host b: its agent says that it has heard of generation"));
    (void)from(kA, proto::Report{3, {slot_report(4)}});
    (void)from(kC, proto::Report{3, {}});
    EXPECT_EQ(coordinator_->world().generation, 4U) << status();
    EXPECT_EQ(coordinator_->world().size(), 1U);
  }
}

TEST_F(AgentFactsTest, WhoClosesAGenerationThatThereIsNotIsGivenUp) {
  run(2);
  const auto given_up = told<proto::NodeLost>(from(kB, proto::Report{2, {slot_report(1)}}));
  ASSERT_EQ(given_up.size(), 1U);
  EXPECT_EQ(given_up[0].second.why,
            "host b: its agent says that generation 2 is over, the newest is 1");
}

TEST_F(AgentFactsTest, WhoIsHeardButDoesNotAnswerARevokeIsGivenUp) {
  run(3);
  ASSERT_EQ(told<proto::Revoke>(from(kA, proto::Report{1, {slot_report(0)}})).size(), 1U);
  (void)from(kA, proto::Report{1, {slot_report(0)}});
  (void)from(kC, proto::Report{1, {slot_report(2)}});
  EXPECT_TRUE(given_up_within(19).empty());
  const auto given_up = given_up_within(1);
  ASSERT_EQ(given_up.size(), 1U);
  EXPECT_EQ(given_up[0].first, kB);
  EXPECT_EQ(given_up[0].second.why, "host b: its agent is heard, but has not answered for 20 s");
  EXPECT_EQ(coordinator_->world().generation, 2U) << status();
  EXPECT_EQ(coordinator_->world().size(), 2U);
  EXPECT_TRUE(given_up_within(60).empty());  // nothing is asked
}

TEST_F(AgentFactsTest, EachHostHasItsOwnTimeToAnswer) {
  constexpr proto::NodeId kD = 4;
  run(3);
  (void)from(kA, proto::Report{1, {slot_report(0)}});
  (void)from(kA, proto::Report{1, {slot_report(0)}});
  (void)from(kC, proto::Report{1, {slot_report(2)}});
  EXPECT_TRUE(given_up_within(15).empty());
  ASSERT_EQ(told<proto::Revoke>(from(kD, proto::NodeUp{kD, "d", 1})).size(), 1U);
  auto given_up = given_up_within(5);
  ASSERT_EQ(given_up.size(), 1U);
  EXPECT_EQ(given_up[0].first, kB);
  EXPECT_TRUE(given_up_within(14).empty());
  given_up = given_up_within(1);
  ASSERT_EQ(given_up.size(), 1U);
  EXPECT_EQ(given_up[0].first, kD);
  EXPECT_EQ(coordinator_->world().generation, 2U) << status();
}

TEST_F(AgentFactsTest, WhoIsHeardButDoesNotAnswerAHelloIsGivenUp) {
  restart();
  (void)from(kA, proto::HelloReply{3, 0, {slot_report(4)}});
  EXPECT_TRUE(given_up_within(19).empty());
  const auto given_up = given_up_within(1);
  ASSERT_EQ(given_up.size(), 2U);
  EXPECT_EQ(given_up[0].first, kB);
  EXPECT_EQ(given_up[1].first, kC);
  (void)from(kA, proto::Report{3, {slot_report(4)}});
  EXPECT_EQ(coordinator_->world().generation, 4U) << status();
  EXPECT_EQ(coordinator_->world().size(), 1U);
}

TEST_F(AgentFactsTest, ACoordinatorThatWasStoppedBlamesNobody) {
  run(3);
  ASSERT_EQ(told<proto::Revoke>(from(kA, proto::Report{1, {slot_report(0)}})).size(), 1U);
  now_ += std::chrono::minutes(5);
  EXPECT_TRUE(told<proto::NodeLost>(coordinator_->tick(now_)).empty());
  for (const proto::NodeId node : {kA, kB, kC})
    (void)from(node, proto::Report{1, {slot_report(node - 1)}});
  EXPECT_EQ(coordinator_->world().generation, 2U) << status();
  EXPECT_EQ(coordinator_->world().size(), 3U);
}

TEST_F(AgentFactsTest, AHostWithoutAMemberInTheWorldDoesNotCloseIt) {
  run(2);
  EXPECT_TRUE(told<proto::Revoke>(from(kC, proto::Report{1, {}})).empty());
  EXPECT_EQ(told<proto::Revoke>(from(kB, proto::Report{1, {slot_report(1)}})).size(), 1U);
}

TEST_F(AgentFactsTest, AHostThatTakesNoPartMissesNobody) {
  run(2);
  (void)from(kA, proto::NodeSilent{kA, true});
  EXPECT_TRUE(from(kC, proto::PeerSuspect{0, "forged"}).empty());
  const auto given_up = told<proto::NodeLost>(from(kB, proto::PeerSuspect{0, "no answer"}));
  ASSERT_EQ(given_up.size(), 1U);
  EXPECT_EQ(given_up[0].first, kA);
}

TEST_F(AgentFactsTest, OnlyAMemberOfTheWorldEndsTheJobForStatesThatDiffer) {
  run(2);
  EXPECT_TRUE(from(kB, proto::Diverged{0, "forged: another host's"}).empty());
  EXPECT_TRUE(from(kC, proto::Diverged{2, "forged: of nobody"}).empty());
  EXPECT_FALSE(coordinator_->done());
  const Effects effects = from(kB, proto::Diverged{1, "members 0 and 1 have different states"});
  EXPECT_TRUE(coordinator_->done());
  const auto ends = told<proto::JobDone>(effects);
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0].second,
            (proto::JobDone{1, "members 0 and 1 have different states"}));  // no restart,
  EXPECT_FALSE(ends[0].second.save_state);  // and nothing to be saved
}

TEST_F(AgentFactsTest, AHostThatIsLostWhenItsMemberHasFinishedFailsNothing) {
  run(2);
  for (const proto::MemberId id : {0, 1}) {
    proto::SlotReport finished = slot_report(id);
    finished.finished = true;
    (void)from(id + 1, proto::Report{0, {finished}});
  }
  (void)from(kA, proto::MemberLost{.member = 0, .joined = true, .finished = true, .reaped = true});
  auto ends = told<proto::JobDone>(from(kB, proto::NodeLost{kB, "host b is lost"}));
  if (ends.empty()) ends = told<proto::JobDone>(later());
  ASSERT_FALSE(ends.empty());
  EXPECT_EQ(ends[0].second.exit_code, 0) << ends[0].second.reason;
}

TEST_F(AgentFactsTest, ASuspicionThatIsRepeatedIsWrittenDownOnce) {
  run(2);
  (void)from(kB, proto::PeerSuspect{0, "first"});
  const std::string before = status();
  EXPECT_THAT(before, HasSubstr("member 0 cannot be reached by another: first"));
  for (int i = 0; i < 100; ++i)
    EXPECT_TRUE(from(kB, proto::PeerSuspect{0, std::to_string(i)}).empty());
  EXPECT_EQ(status(), before);
}

TEST_F(AgentFactsTest, WhatIsSaidOfAMemberNamesIt) {
  const auto said = [this](proto::MemberId id, std::string why) {
    std::string out;
    const proto::MemberLost lost{
        .member = id, .joined = true, .exit_code = 3, .reaped = true, .why = std::move(why)};
    for (const Effect& effect : from(id + 1, lost)) {
      if (const auto* say = std::get_if<Say>(&effect)) out = say->sentence;
    }
    return out;
  };
  run(3);
  EXPECT_EQ(said(0, "member 0 (pid 7): exited with status 3"),
            "member 0 (pid 7): exited with status 3");
  EXPECT_EQ(said(1, "host a: its agent is gone"), "member 1: exited with status 3");
  EXPECT_EQ(said(2, "member 21: it is gone"), "member 2: exited with status 3");
}

TEST_F(AgentFactsTest, ASlotHasOneMember) {
  run(1);
  const auto ask = [&](std::uint32_t size) {
    return coordinator_->handle(now_, {Sender::Kind::kClient, 1}, {0, proto::ResizeRequest{size}});
  };
  ASSERT_EQ(told<proto::Start>(ask(3)).size(), 2U);  // members 1 on b, 2 on c
  (void)from(kB, proto::NodeUp{kB, "b", 2});
  (void)from(kC, proto::MemberLost{.member = 2, .exit_code = 1, .reaped = true});
  (void)from(kB, ready(1, 5));
  (void)from(kC, proto::NodeLost{kC, "host c is lost"});
  const auto again = told<proto::Start>(later());
  ASSERT_EQ(again.size(), 1U);
  ASSERT_EQ(again[0].first, kB);
  EXPECT_TRUE(members().contains(1));
  (void)from(kB, ready(again[0].second.member, 5));
  EXPECT_FALSE(members().contains(1)) << status();
}

TEST_F(AgentFactsTest, WhoWasNotAskedForATransferDoesNotEndIt) {
  run(1);
  (void)coordinator_->handle(now_, {Sender::Kind::kClient, 1}, {0, proto::ResizeRequest{2}});
  const auto asked = told<proto::StartSource>(from(kB, ready(1)));
  ASSERT_EQ(asked.size(), 1U) << status();
  ASSERT_EQ(asked[0].first, kA);
  const proto::TransferId transfer = asked[0].second.transfer;
  EXPECT_TRUE(from(kC, proto::SourceStatus{transfer, 0, "", "forged"}).empty());
  EXPECT_TRUE(from(kC, proto::SourceStatus{transfer, 7, "elsewhere", ""}).empty());
  const auto learn =
      told<proto::StartTarget>(from(kA, proto::SourceStatus{transfer, 7, "there", ""}));
  ASSERT_EQ(learn.size(), 1U);
  EXPECT_EQ(learn[0].second.sources, (std::vector<proto::SourceAgent>{{kA, "there", "a"}}));
}

}  // namespace
}  // namespace regroup::membership
