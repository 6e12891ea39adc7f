// The data planes of the Worlds of a job, as members come and go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/membership/hosts_fixture.h"

namespace regroup::membership {
namespace {

using proto::Plane;
using proto::PlaneFacts;
using testing::HasSubstr;

PlaneFacts facts_without(bool device, Plane plane, const std::string& reason) {
  PlaneFacts facts{.device = device, .reasons = {}};
  facts.reasons[static_cast<std::size_t>(plane)] = reason;
  return facts;
}

class PlanesTest : public HostsTest {
 protected:
  // The facts of members 0 to 9: all the same, but for those that the test changes.
  static SimOptions all_have(SimOptions options, const PlaneFacts& facts) {
    for (proto::MemberId id = 0; id < 10; ++id) options.planes[id] = facts;
    return options;
  }
  std::string status(SimJob& job) { return job.coordinator->status_json(job.now); }
};

TEST_F(PlanesTest, OfOneHostItIsShmAndOfSeveralUcx) {
  EXPECT_EQ(start(all_have({}, {})).journal->plane, Plane::kShm);
  EXPECT_EQ(job_->journal->plane_why, "shm: the members are on one host");
  EXPECT_THAT(status(*job_), HasSubstr(R"("plane":"shm")"));
  EXPECT_EQ(start_on(all_have(three_hosts(), {}), 6).journal->plane, Plane::kUcx);
  EXPECT_EQ(job_->journal->plane_why, "ucx: the members are on 3 hosts (h0, h1, h2)");
}

TEST_F(PlanesTest, MembersThatReportNoPlanesTrainAsBefore) {
  EXPECT_EQ(start_on(three_hosts(), 6).journal->plane, Plane::kUcx);
}

TEST_F(PlanesTest, ANewcomerMakesAPlaneNotViableAndTheNextWorldHasAnother) {
  SimOptions o = all_have({}, PlaneFacts{.device = true, .reasons = {}});
  o.planes[3] = facts_without(true, Plane::kCuda, "no libcuda.so.1");
  SimJob& job = start(std::move(o));
  EXPECT_EQ(job.journal->plane, Plane::kCuda);
  ASSERT_TRUE(job.ask(proto::ResizeRequest{4}).ok);
  ASSERT_TRUE(job.steady(2, 4));
  EXPECT_EQ(job.journal->plane, Plane::kStaged);
  EXPECT_EQ(job.journal->plane_why,
            "staged over shm: cuda is not viable: member 3: no libcuda.so.1");
  EXPECT_THAT(status(job), HasSubstr("plane: staged over shm"));  // in the history
  job.kill(3);
  ASSERT_TRUE(job.steady(job.generation() + 1, 3) || job.steady(job.generation() + 1, 4));
  ASSERT_TRUE(job.run_until([&] { return job.journal->plane == Plane::kCuda; }))
      << "without that member the faster plane comes back";
  expect_success(job);
}

TEST_F(PlanesTest, ARequestedPlaneThatIsNotViableEndsTheJobWithTheReason) {
  SimOptions o = all_have({}, facts_without(true, Plane::kNccl, "no libnccl.so.2"));
  o.policy.plane = Plane::kNccl;
  job_.emplace(std::move(o));
  ASSERT_TRUE(job_->run_to_end());
  EXPECT_EQ(job_->end->exit_code, 1);
  EXPECT_EQ(job_->end->reason,
            "--plane nccl: it is not viable: no libnccl.so.2; --plane cuda fits");
}

TEST_F(PlanesTest, ARequestedPlaneOfOneHostEndsAJobOnSeveralWithTheReason) {
  SimOptions o = all_have(three_hosts(), PlaneFacts{.device = true, .reasons = {}});
  o.policy.plane = Plane::kCuda;
  job_.emplace(std::move(o));
  ASSERT_TRUE(job_->run_to_end());
  EXPECT_EQ(job_->end->reason,
            "--plane cuda: it serves one host, the members are on 3 hosts (h0, h1, h2); --plane "
            "nccl fits");
}

TEST_F(PlanesTest, ANewcomerWithoutTheRequestedPlaneIsRefusedAndTheJobGoesOn) {
  SimOptions o = all_have({}, PlaneFacts{.device = true, .reasons = {}});
  o.policy.plane = Plane::kCuda;
  o.planes[3] = facts_without(true, Plane::kCuda, "no libcuda.so.1");
  SimJob& job = start(std::move(o));
  ASSERT_TRUE(job.ask(proto::ResizeRequest{4}).ok);
  ASSERT_TRUE(job.run_until([&] {
    return job.heard(
        "member 3 is refused: --plane cuda: it is not "
        "viable: member 3: no libcuda.so.1");
  }));
  ASSERT_TRUE(job.steady(2, 4)) << "with member 4";
  EXPECT_EQ(job.journal->plane, Plane::kCuda);
  EXPECT_EQ(job.journal->rank_of(proto::MemberId{3}), -1);
}

TEST_F(PlanesTest, AMemberWithGradientsInOtherMemoryIsRefusedByName) {
  SimOptions o = all_have({}, PlaneFacts{.device = true, .reasons = {}});
  o.planes[3].device = false;
  SimJob& job = start(std::move(o));
  ASSERT_TRUE(job.ask(proto::ResizeRequest{4}).ok);
  ASSERT_TRUE(job.run_until([&] {
    return job.heard(
        "member 3 is refused: its gradients are in the host's memory, those of member 0 in memory "
        "of a GPU");
  }));
  ASSERT_TRUE(job.steady(2, 4)) << "with member 4";
}

TEST_F(PlanesTest, AHostWhoseMembersAllHaveGradientsInOtherMemoryDoesNotEndTheJob) {
  SimOptions o = all_have({}, PlaneFacts{.device = true, .reasons = {}});
  o.policy.slots = 12;
  o.arena_slots = 16;
  o.policy.max = 12;
  for (proto::MemberId id = 3; id < 40; ++id) o.planes[id] = PlaneFacts{};
  SimJob& job = start(std::move(o));
  ASSERT_TRUE(job.ask(proto::ResizeRequest{12}).ok);
  ASSERT_TRUE(job.run_until([&] { return job.heard("member 11 is refused: its gradients are"); }));
  expect_success(job);
}

TEST_F(PlanesTest, LostCarriersAreShownUntilTheNextWorld) {
  SimOptions o = all_have(three_hosts(), {});
  o.policy.plane = Plane::kMpi;
  SimJob& job = start_on(std::move(o), 6);
  const auto tell = [&](proto::NodeId node, proto::Generation generation, const char* why) {
    return job.coordinator->handle(job.now, {Sender::Kind::kAgent, node},
                                   {job.incarnation, proto::CarrierLost{generation, why}, node});
  };
  EXPECT_TRUE(tell(1, 9, "of another generation").empty());
  EXPECT_THAT(status(job), HasSubstr(R"("plane":"mpi")"));
  EXPECT_FALSE(tell(1, 1, "first").empty());  // for the user and the journal
  EXPECT_TRUE(tell(2, 1, "second").empty());
  EXPECT_THAT(status(job),
              HasSubstr(R"("plane":"ucx","plane_why":"ucx in place of mpi: host h1: first")"));
  job.kill(1);
  ASSERT_TRUE(job.steady(2, 5) || job.steady(job.generation(), 6));
  EXPECT_THAT(status(job), HasSubstr("\"plane_why\":\"mpi: requested (--plane)\""));
  expect_success(job);
}

TEST_F(PlanesTest, AStartOfNcclThatFailsIsShownUntilTheNextWorld) {
  SimOptions o = all_have(three_hosts(), PlaneFacts{.device = true, .reasons = {}});
  o.policy.plane = Plane::kNccl;
  SimJob& job = start_on(std::move(o), 6);
  EXPECT_FALSE(job.coordinator
                   ->handle(job.now, {Sender::Kind::kAgent, 1},
                            {job.incarnation, proto::CarrierLost{1, "no id"}, 1})
                   .empty());
  EXPECT_THAT(status(job), HasSubstr(R"("plane":"staged","plane_why":"staged in place of nccl: )"
                                     R"(host h1: no id")"));
  job.kill(1);
  ASSERT_TRUE(job.steady(2, 5) || job.steady(job.generation(), 6));
  EXPECT_THAT(status(job), HasSubstr("\"plane_why\":\"nccl: requested (--plane)\""));
  expect_success(job);
}

TEST_F(PlanesTest, LostCarriersAreToldOfNoOtherPlane) {
  SimJob& job = start_on(all_have(three_hosts(), {}), 6);
  EXPECT_TRUE(job.coordinator
                  ->handle(job.now, {Sender::Kind::kAgent, 1},
                           {job.incarnation, proto::CarrierLost{1, "forged"}, 1})
                  .empty());
}

TEST_F(PlanesTest, ARestartedCoordinatorLearnsThePlanesAgain) {
  SimOptions o = all_have({}, facts_without(true, Plane::kCuda, "no libcuda.so.1"));
  SimJob& job = start(std::move(o));
  const std::string why = job.journal->plane_why;
  EXPECT_EQ(why, "staged over shm: cuda is not viable: no libcuda.so.1");
  job.restart_coordinator(false);
  ASSERT_TRUE(job.run_until([&] { return status(job).find("steady") != std::string::npos; }));
  EXPECT_THAT(status(job), HasSubstr(why));
  job.kill(1);
  ASSERT_TRUE(job.steady(job.generation() + 1, 2));
  EXPECT_EQ(job.journal->plane_why, why);
}

TEST_F(PlanesTest, ANewcomerWhoseHostAnswersARestartedCoordinatorFirstDoesNotEndTheJob) {
  SimOptions o = all_have(three_hosts(), PlaneFacts{.device = true, .reasons = {}});
  o.policy.target = 4;
  o.planes[4] = o.planes[5] = PlaneFacts{};
  SimJob& job = start_on(std::move(o), 4);
  ASSERT_TRUE(job.reach(2));
  ASSERT_TRUE(job.ask(proto::ResizeRequest{5}).ok);
  ASSERT_TRUE(job.run_until([&] { return job.members.contains(4) && job.member(4).ready; }));
  const proto::NodeId node = job.member(4).node;
  job.restart_coordinator(true);
  while (job.deliver_to_agent(node) || job.deliver_to_coordinator(node) ||
         (!job.heard("member 4") && job.act(job.member(4)))) {
  }
  ASSERT_TRUE(job.run_until([&] { return job.heard("member 4 is refused: "); }));
  expect_success(job);
}

}  // namespace
}  // namespace regroup::membership
