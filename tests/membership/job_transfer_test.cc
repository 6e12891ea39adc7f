// Who joins learns while the others train; and whatever dies at whatever moment of a state
// transfer. docs/design/catch_up.md.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/membership/job_fixture.h"

namespace regroup::membership {
namespace {

using testing::ContainsRegex;
using Hosts = std::vector<std::uint32_t>;

// Several hosts give from the second World of a job on: in the first, one member gave its state to
// the others.
bool several(const Hosts& hosts) { return hosts.size() > 2; }

// One member more leaves before the state transfer, where several give.
SimOptions learning(const Hosts& hosts, std::uint32_t members = 2) {
  SimOptions o;
  o.policy.kept_results = 4;
  o.policy.min = 1;
  o.policy.target = members + (several(hosts) ? 1 : 0);
  o.policy.by_node = true;
  o.steps = 40;
  o.hosts = hosts;
  return o;
}

// `members` train, and the next one that comes learns; its id, or 0.
proto::MemberId begin(SimJob& job, std::uint32_t members = 2) {
  if (!several(job.options.hosts)) return job.steady(1, members) ? members : 0;
  const bool shrunk = job.steady(1, members + 1) && job.ask(proto::ResizeRequest{members}).ok &&
                      job.steady(2, members);
  return shrunk ? members + 1 : 0;
}

bool learned(const SimJob& job, proto::MemberId id) {
  const int rank = job.journal ? job.journal->rank_of(id) : -1;
  return rank >= 0 && !job.journal->members[static_cast<std::size_t>(rank)].needs_state;
}

TEST_F(JobTest, WhoJoinsComesInWithItsState) {
  const struct {
    Hosts hosts;
    std::uint32_t members;
    std::size_t sources;  // on other hosts than the learner's
  } rows[] = {{{}, 2, 0}, {{2, 2}, 2, 0}, {{1, 1}, 1, 1}, {{1, 1, 1}, 2, 2}, {{1, 1, 1, 1}, 3, 3}};
  for (const auto& row : rows) {
    SimJob job(learning(row.hosts, row.members));
    const proto::MemberId learner = begin(job, row.members);
    ASSERT_NE(learner, 0U);
    ASSERT_TRUE(job.ask(proto::ResizeRequest{row.members + 1}).ok);
    ASSERT_TRUE(job.steady(several(row.hosts) ? 3 : 2, row.members + 1))
        << job.coordinator->status_json(job.now);
    EXPECT_TRUE(learned(job, learner));
    EXPECT_EQ(job.most_sources, row.sources);
    EXPECT_EQ(job.transfers_read, 1U);
    EXPECT_GT(job.results_replayed, 0U);
    ASSERT_TRUE(job.run_to_end());
    EXPECT_EQ(job.end->exit_code, 0) << job.end->reason;
    EXPECT_EQ(job.broken, std::vector<std::string>{});
  }
}

enum class Victim {
  kSource,
  kOtherSource,
  kLearner,
  kCoordinator,
  kDeafCoordinator,
  kNoticeToLearner,
  kHost,
  kOtherHost,
  kCount
};

void strike(SimJob& job, Victim victim, proto::MemberId learner) {
  switch (victim) {
    case Victim::kSource:
      return job.kill(0);
    case Victim::kOtherSource:
      return job.kill(1);
    case Victim::kLearner:
      if (job.members.contains(learner)) job.kill(learner);
      return;
    case Victim::kCoordinator:
      return job.restart_coordinator(false);
    case Victim::kDeafCoordinator:
      return job.restart_coordinator(true);
    case Victim::kNoticeToLearner:
      (void)job.ask(proto::NoticeRequest{learner});
      return;
    case Victim::kHost:
      return job.lose_host(0);
    case Victim::kOtherHost:
      return job.lose_host(1);
    case Victim::kCount:
      return;
  }
}

struct Layout {
  Hosts hosts;
  int every;  // moment
  Victim last = Victim::kOtherHost;
};

// Moments are moves of a job in which everybody moves in turn: from the resize to two steps after
// the World with the learner. How many of them were between the parts of several sources.
int strike_at_every_moment(const Layout& layout, Victim victim) {
  int halfway = 0;
  for (int moment = 1; moment < 150; moment += layout.every) {
    SimJob job(learning(layout.hosts));
    const proto::MemberId learner = begin(job);
    EXPECT_NE(learner, 0U);
    EXPECT_TRUE(job.ask(proto::ResizeRequest{3}).ok);
    int moves = 0;
    if (!job.run_until([&] { return ++moves > moment; })) break;
    const bool between = several(layout.hosts) && job.transfer_is_halfway(2);
    halfway += between ? 1 : 0;
    strike(job, victim, learner);
    const std::string where = fmt::format("{} hosts, victim {}, moment {}", layout.hosts.size(),
                                          static_cast<int>(victim), moment);
    EXPECT_TRUE(job.run_to_end()) << where << job.coordinator->status_json(job.now);
    EXPECT_EQ(job.broken, std::vector<std::string>{}) << where;
    if (testing::Test::HasFailure()) break;
    EXPECT_EQ(job.end->exit_code, 0) << where << job.end->reason;
    const std::string said = job.coordinator->status_json(job.now);
    if (between && victim == Victim::kHost) {
      EXPECT_THAT(said, ContainsRegex("state transfer 4097 [^,]*: host h0")) << where;
    }
    if (between && victim == Victim::kOtherHost) {
      EXPECT_THAT(said, ContainsRegex("state transfer 4097 [^,]*: host h1")) << where;
    }
    if (testing::Test::HasFailure()) break;
  }
  return halfway;
}

TEST_F(JobTest, WhateverDiesAtAnyMomentOfATransferTheJobEndsWell) {
  const Layout layouts[] = {{{}, 3, Victim::kNoticeToLearner}, {{2, 2}, 5}, {{1, 1, 1}, 1}};
  for (const Layout& layout : layouts) {
    for (int v = 0; v <= static_cast<int>(layout.last); ++v) {
      const int halfway = strike_at_every_moment(layout, static_cast<Victim>(v));
      EXPECT_TRUE(halfway > 0 || !several(layout.hosts)) << "victim " << v;
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace regroup::membership
