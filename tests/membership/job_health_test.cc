// Members whose GPU is not healthy, as they come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/membership/hosts_fixture.h"

namespace regroup::membership {
namespace {

using proto::DeviceHealth;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

DeviceHealth healthy(const std::string& gpu) { return {gpu, "H100", {}}; }
DeviceHealth faulty(const std::string& gpu) { return {gpu, "H100", {"wrong bits"}}; }

class HealthTest : public HostsTest {
 protected:
  // Of members 0 to 19, each with a GPU of its own.
  static SimOptions all_healthy(SimOptions options) {
    for (proto::MemberId id = 0; id < 20; ++id)
      options.healths[id] = healthy("GPU-" + std::to_string(id));
    options.steps = 100;
    return options;
  }
  SimJob& begin(SimOptions options) { return job_.emplace(std::move(options)); }
  [[nodiscard]] bool comes_to(const std::string& words) {
    return job_->run_until([&] { return job_->heard(words); });
  }
  // Member 3 was killed, and its host has room for one more.
  SimJob& begin_with_a_refused_newcomer() {
    SimOptions o = all_healthy({});
    o.policy.slots = 6;
    o.healths[3] = faulty("GPU-3");
    SimJob& job = begin(std::move(o));
    EXPECT_TRUE(job.steady(1, 3));
    EXPECT_TRUE(job.ask(proto::ResizeRequest{4}).ok);
    EXPECT_TRUE(job.run_until([&] { return job.members.contains(3) && job.member(3).ready; }));
    pass_unreaped(std::chrono::seconds(1));
    EXPECT_FALSE(job.member(3).alive);
    return job;
  }
  // Nobody learns of the ends of processes.
  void pass_unreaped(base::Duration time) {
    for (const base::TimePoint until = job_->now + time; job_->now < until;) {
      while (job_->deliver_to_coordinator() || job_->deliver_to_agent()) {
      }
      job_->pass(std::chrono::milliseconds(500));
    }
  }
  static std::string status(SimJob& job) { return job.coordinator->status_json(job.now); }
};

TEST_F(HealthTest, AMemberOnAFaultyGpuIsReplacedByOneElsewhere) {
  SimOptions o = all_healthy({});
  o.healths[1] = faulty("GPU-1");
  SimJob& job = begin(std::move(o));
  ASSERT_TRUE(job.steady(2, 3)) << status(job);
  EXPECT_TRUE(job.heard("member 1 is refused: GPU-1 (H100): wrong bits"));
  EXPECT_EQ(job.journal->rank_of(proto::MemberId{1}), -1);
  EXPECT_THAT(job.member(3).start.refused_gpus, ElementsAre("GPU-1"));
  EXPECT_THAT(job.member(2).start.refused_gpus, IsEmpty());
  EXPECT_THAT(status(job), HasSubstr(R"("refused_gpus":[{"gpu":"GPU-1","member":1,"node":0,)"
                                     R"("why":"GPU-1 (H100): wrong bits"}])"));
  expect_success(job);
}

// Members of a GPU that is shared, or of which nothing is known.
TEST_F(HealthTest, AHealthyGpuIsNeverRefused) {
  SimOptions o = all_healthy({});
  o.healths[0] = o.healths[1] = healthy("GPU-0");
  o.healths[2] = {"", "H100", {"no UUID"}};
  SimJob& job = begin(std::move(o));
  ASSERT_TRUE(job.steady(1, 3)) << status(job);
  EXPECT_THAT(status(job), HasSubstr(R"("refused_gpus":[])"));
  expect_success(job);
}

TEST_F(HealthTest, TheReplacementStartsOnceTheRefusedProcessHasEnded) {
  SimJob& job = begin_with_a_refused_newcomer();
  pass_unreaped(std::chrono::seconds(8));
  EXPECT_FALSE(job.members.contains(4));
  ASSERT_TRUE(job.steady(2, 4));
  EXPECT_TRUE(job.members.contains(4));
  expect_success(job);
}

TEST_F(HealthTest, ARefusedProcessThatDoesNotEndKeepsNoOtherFromStarting) {
  SimJob& job = begin_with_a_refused_newcomer();
  pass_unreaped(std::chrono::seconds(15));
  EXPECT_TRUE(job.members.contains(4));
  ASSERT_TRUE(job.steady(2, 4));
  expect_success(job);
}

// Its slot's futex tells so before it is reaped, and an agent that waits for a hanging one.
TEST_F(HealthTest, AReportedEndIsOneAlsoBeforeTheProcessIsReaped) {
  SimJob& job = begin_with_a_refused_newcomer();
  ASSERT_TRUE(job.report_death());
  pass_unreaped(std::chrono::seconds(1));
  EXPECT_TRUE(job.members.contains(4));
  ASSERT_TRUE(job.steady(2, 4));
  expect_success(job);
}

TEST_F(HealthTest, WithoutAnotherGpuTheJobGoesOnWithFewer) {
  SimOptions o = all_healthy({});
  o.healths[1] = faulty("GPU-1");
  o.healths[3] = healthy("GPU-1");  // now it looks healthy
  SimJob& job = begin(std::move(o));
  ASSERT_TRUE(comes_to("slot 1: there is no other GPU for its member"));
  EXPECT_TRUE(job.heard("member 3 is refused: GPU-1 (H100): wrong bits"));
  ASSERT_TRUE(job.steady(1, 2));
  expect_success(job);
  EXPECT_FALSE(job.members.contains(4));
}

TEST_F(HealthTest, AResizeTriesTheGpuAgainUnlessItIsRefusedItself) {
  SimOptions o = all_healthy({});
  o.healths[1] = o.healths[3] = faulty("GPU-1");
  o.healths[4] = healthy("GPU-1");
  SimJob& job = begin(std::move(o));
  ASSERT_TRUE(comes_to("slot 1: there is no other GPU"));
  ASSERT_TRUE(job.steady(1, 2));
  ASSERT_FALSE(job.ask(proto::ResizeRequest{9}).ok);
  EXPECT_THAT(status(job), HasSubstr(R"("gpu":"GPU-1")"));
  ASSERT_TRUE(job.ask(proto::ResizeRequest{3}).ok);
  ASSERT_TRUE(job.steady(2, 3));
  EXPECT_THAT(job.member(4).start.refused_gpus, IsEmpty());
  EXPECT_TRUE(job.past.refused.all.empty());
  expect_success(job);
}

TEST_F(HealthTest, WithTooFewHealthyGpusTheJobEndsWithTheReason) {
  SimOptions o = all_healthy({});
  for (proto::MemberId id = 0; id < 20; ++id) o.healths[id] = faulty("GPU-1");
  SimJob& job = begin(std::move(o));
  ASSERT_TRUE(job.run_to_end());
  EXPECT_EQ(job.end->exit_code, 1);
  EXPECT_THAT(job.end->reason, HasSubstr(" is refused: GPU-1 (H100): wrong bits: "));
  EXPECT_THAT(job.end->reason, HasSubstr(" of at least 2 members left"));
  EXPECT_LT(job.members.size(), 8U);
}

TEST_F(HealthTest, WithoutReplacementTheJobGoesOnWithFewer) {
  SimOptions o = all_healthy(never_replaced());
  o.healths[1] = faulty("GPU-1");
  SimJob& job = begin(std::move(o));
  ASSERT_TRUE(job.steady(1, 2));
  expect_success(job);
  EXPECT_EQ(job.members.size(), 3U);
}

class HostsHealthTest : public HealthTest {
 protected:
  // On the first of two hosts members 1 and 4 have had the same GPU, and a third host comes.
  SimJob& begin_with_a_faulty_gpu() {
    SimOptions o = all_healthy(three_hosts());
    o.hosts = {2, 2};
    o.policy.target = 4;
    o.healths[1] = o.healths[4] = faulty("GPU-1");
    SimJob& job = begin(std::move(o));
    EXPECT_TRUE(comes_to("member 4 is refused"));
    EXPECT_EQ(job.member(4).node, job.member(1).node);
    (void)job.add_host(2);
    return job;
  }
};

// Member 4 was told, and comes with it again.
TEST_F(HostsHealthTest, AnotherHostTakesTheMemberAndTheFirstHasOneSlotLess) {
  SimJob& job = begin_with_a_faulty_gpu();
  ASSERT_TRUE(job.run_until([&] { return job.generation() > 0 && job.journal->size() == 4; }));
  ASSERT_TRUE(job.members.contains(5));
  EXPECT_NE(job.member(5).node, job.member(4).node);
  EXPECT_TRUE(job.heard("there is no other GPU for a member: it has 1 slot now"));
  EXPECT_FALSE(job.heard("the slot is disabled"));
  EXPECT_THAT(status(job), HasSubstr(R"("slots":1)"));
  expect_success(job);
}

// Both slots of the first host have the same GPU.
TEST_F(HostsHealthTest, AHostWhoseGpusAreAllRefusedHasNoSlots) {
  SimOptions o = all_healthy(three_hosts());
  o.hosts = {2, 2};
  o.policy = {.min = 2, .max = 4, .target = 4, .shards = 8};
  for (const proto::MemberId id : {0, 1, 4, 5, 6}) o.healths[id] = faulty("GPU-1");
  SimJob& job = begin(std::move(o));
  ASSERT_TRUE(job.run_until([&] { return job.heard("it has 0 slots now"); })) << status(job);
  EXPECT_THAT(status(job), HasSubstr(R"("slots":0)"));
  EXPECT_LT(job.members.size(), 8U);
  (void)job.add_host(2);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 4; })) << status(job);
  expect_success(job);
}

// The target is the minimum: without another member the job would end after a while.
TEST_F(HostsHealthTest, ARefusedProcessThatHangsDelaysItsOwnHostAlone) {
  SimOptions o = all_healthy(three_hosts());
  o.hosts = {3, 1};
  o.policy = {.min = 2, .max = 4, .target = 2, .shards = 8};
  o.healths[2] = faulty("GPU-2");
  SimJob& job = begin(std::move(o));
  ASSERT_TRUE(job.steady(1, 2)) << status(job);
  job.kill(1);
  ASSERT_TRUE(job.run_until([&] { return job.members.contains(2) && job.member(2).ready; }));
  EXPECT_EQ(job.member(2).node, job.member(0).node);
  pass_unreaped(std::chrono::seconds(1));
  ASSERT_TRUE(job.members.contains(3));
  EXPECT_NE(job.member(3).node, job.member(0).node);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 2 && job.generation() > 1; }));
  expect_success(job);
}

TEST_F(HostsHealthTest, AResizeTriesAgainWhatTheJobCannotDoWithout) {
  SimOptions o = all_healthy(three_hosts());
  o.hosts = {2, 2};
  o.policy = {.min = 4, .max = 4, .target = 4, .shards = 8};
  o.healths[4] = o.healths[5] = faulty("GPU-1");
  SimJob& job = begin(std::move(o));
  ASSERT_TRUE(job.steady(1, 4)) << status(job);
  job.kill(1);
  ASSERT_TRUE(comes_to("member 5 is refused"));
  const proto::Reply reply = job.ask(proto::ResizeRequest{4});
  EXPECT_TRUE(reply.ok) << reply.message;
  ASSERT_TRUE(job.run_until([&] { return job.members.contains(6) && job.journal->size() == 4; }));
  expect_success(job);
}

TEST_F(HostsHealthTest, ARestartedCoordinatorCountsARefusalOnce) {
  SimJob& job = begin_with_a_faulty_gpu();
  job.restart_coordinator(false);
  ASSERT_TRUE(job.run_until([&] { return job.generation() > 0 && job.journal->size() == 4; }));
  ASSERT_EQ(job.past.refused.all.size(), 1U);
  EXPECT_EQ(job.past.refused.all.front().slots_lost, 1U);
  EXPECT_THAT(status(job), HasSubstr(R"("slots":1)"));
  expect_success(job);
}

TEST_F(HostsHealthTest, ARestartedCoordinatorKnowsTheRefusedGpus) {
  SimJob& job = begin_with_a_faulty_gpu();
  ASSERT_TRUE(job.run_until([&] { return job.generation() > 0 && job.journal->size() == 4; }));
  job.restart_coordinator(false);
  ASSERT_TRUE(job.run_until([&] { return status(job).find("steady") != std::string::npos; }));
  EXPECT_THAT(status(job), HasSubstr(R"("gpu":"GPU-1","member":1)"));
  EXPECT_THAT(status(job), HasSubstr(R"("slots":1)"));
  ASSERT_TRUE(job.ask(proto::ResizeRequest{5}).ok);  // forgets them: the slot counts again
  EXPECT_THAT(status(job), Not(HasSubstr(R"("slots":1)")));
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 5; })) << status(job);
  expect_success(job);
}

}  // namespace
}  // namespace regroup::membership
