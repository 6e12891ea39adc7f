// Who joins learns while the others train; and whatever dies at whatever moment of a lesson.
// docs/design/learners.md.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/membership/job_fixture.h"

namespace regroup::membership {
namespace {

SimOptions learning(std::vector<std::uint32_t> hosts = {}) {
  SimOptions o;
  o.policy.kept_results = 4;
  o.policy.min = 1;
  o.policy.target = 2;
  o.policy.by_node = true;
  o.steps = 40;
  o.hosts = std::move(hosts);
  return o;
}

bool learned(const SimJob& job, core::MemberId id) {
  const int rank = job.journal ? job.journal->rank_of(id) : -1;
  return rank >= 0 && !job.journal->members[static_cast<std::size_t>(rank)].needs_state;
}

TEST_F(JobTest, WhoJoinsComesInWithItsState) {
  for (const auto& hosts : {std::vector<std::uint32_t>{}, {2, 2}}) {
    SimJob job(learning(hosts));
    ASSERT_TRUE(job.steady(1, 2));
    ASSERT_TRUE(job.ask(core::ResizeRequest{3}).ok);
    ASSERT_TRUE(job.steady(2, 3)) << job.coordinator->status_json(job.now);
    EXPECT_TRUE(learned(job, 2));
    EXPECT_EQ(job.lessons_read, 1U);
    EXPECT_GT(job.results_replayed, 0U);
    ASSERT_TRUE(job.run_to_end());
    EXPECT_EQ(job.end->exit_code, 0) << job.end->reason;
    EXPECT_EQ(job.broken, std::vector<std::string>{});
  }
}

enum class Victim { kSource, kLearner, kCoordinator, kDeafCoordinator, kNoticeToLearner, kHost, kCount };

void strike(SimJob& job, Victim victim) {
  switch (victim) {
    case Victim::kSource:
      return job.kill(0);
    case Victim::kLearner:
      if (job.members.contains(2)) job.kill(2);
      return;
    case Victim::kCoordinator:
      return job.restart_coordinator(false);
    case Victim::kDeafCoordinator:
      return job.restart_coordinator(true);
    case Victim::kNoticeToLearner:
      (void)job.ask(core::NoticeRequest{2});
      return;
    case Victim::kHost:
      return job.lose_host(0);
    case Victim::kCount:
      return;
  }
}

// Moments are moves of a job in which everybody moves in turn: from the resize to two steps after the World
// with the learner.
TEST_F(JobTest, WhateverDiesAtAnyMomentOfALessonTheJobEndsWell) {
  for (const bool several : {false, true}) {
    for (int v = 0; v < static_cast<int>(Victim::kCount); ++v) {
      const auto victim = static_cast<Victim>(v);
      if (victim == Victim::kHost && !several) continue;
      for (int moment = 1; moment < 150; moment += several ? 5 : 3) {
        SimJob job(learning(several ? std::vector<std::uint32_t>{2, 2} : std::vector<std::uint32_t>{}));
        ASSERT_TRUE(job.steady(1, 2));
        ASSERT_TRUE(job.ask(core::ResizeRequest{3}).ok);
        int moves = 0;
        if (!job.run_until([&] { return ++moves > moment; })) break;
        strike(job, victim);
        const std::string where = fmt::format("{} hosts, victim {}, moment {}", several ? 2 : 1, v, moment);
        ASSERT_TRUE(job.run_to_end()) << where << job.coordinator->status_json(job.now);
        ASSERT_EQ(job.broken, std::vector<std::string>{}) << where;
        ASSERT_EQ(job.end->exit_code, 0) << where << job.end->reason;
      }
    }
  }
}

}  // namespace
}  // namespace regroup::membership
