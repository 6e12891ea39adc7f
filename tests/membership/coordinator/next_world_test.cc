// The content of the next World: where it resumes, and who gives the state to whom.
#include "membership/coordinator/next_world.h"

#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

using proto::Phase;
using proto::Position;

class NextWorld : public testing::Test {
 protected:
  MemberInfo& add(proto::MemberId id) {
    MemberInfo& r = members_.add(id, id, {});
    r.state = MemberState::kWarm;
    return r;
  }
  // Members 0 and 1, each on the node of its number, are in World 3 and have the state.
  void begin() {
    before_ = {.generation = 3, .resume = Position::of(7), .shards = 2, .plan = {{0, 0}, {1, 0}}};
    for (const proto::MemberId id : {0, 1}) {
      before_.members.push_back({.id = id, .slot_id = {id, 0}});
      MemberInfo& r = add(id);
      r.state = MemberState::kActive;
      r.entry = before_.members.back();
      r.rank = static_cast<int>(id);
    }
  }
  void report(proto::MemberId id, Phase phase, proto::Step step) {
    reports_[id].push_back(
        {.member = id, .slot = 0, .state = {phase, false, 3, Position::of(step)}});
  }
  std::variant<proto::World, StateIsLost> form(std::vector<proto::MemberId> ids) {
    return next_world({.incarnation = 2,
                       .generation = 9,
                       .shards = 2,
                       .checkpoint = checkpoint_,
                       .members = std::move(ids),
                       .why = "a test"},
                      before_, members_, reports_);
  }
  proto::World world(std::vector<proto::MemberId> ids) {
    return std::get<proto::World>(form(std::move(ids)));
  }
  proto::World before_;
  MemberTable members_;
  ReportRound::Reports reports_;
  proto::Step checkpoint_ = 0;
};

TEST_F(NextWorld, TheFirstMemberOfTheFirstWorldGivesItsState) {
  for (const proto::MemberId id : {0, 1}) add(id);
  checkpoint_ = 40;
  const proto::World w = world({0, 1});
  EXPECT_EQ(w.generation, 9U);
  EXPECT_EQ(w.resume, Position::of(40));
  EXPECT_FALSE(w.members[0].needs_state);
  EXPECT_TRUE(w.members[1].needs_state);
  EXPECT_EQ(w.plan.size(), 2U);
}

TEST_F(NextWorld, AStepThatADeadMemberCommittedCounts) {
  begin();
  report(0, Phase::kClosed, 8);
  report(1, Phase::kCommitted, 8);
  const proto::World w = world({0});
  EXPECT_EQ(w.resume, Position::of(8));
  EXPECT_FALSE(w.members[0].needs_state);
}

TEST_F(NextWorld, AStepThatALearnerHasAppliedCounts) {
  begin();
  MemberInfo& learner = add(2);
  learner.catch_up = CatchUp::kReplays;
  learner.caught_up_to = 9;
  const proto::World w = world({0, 1, 2});
  EXPECT_EQ(w.resume, Position::of(9));
  EXPECT_TRUE(w.members[2].replays);
  EXPECT_FALSE(w.members[2].needs_state);
  EXPECT_EQ(w.members[2].from_step, 10U);
}

TEST_F(NextWorld, ANewcomerCopiesTheState) {
  begin();
  add(2);
  const proto::World w = world({0, 2});
  EXPECT_TRUE(w.members[1].needs_state);
  EXPECT_EQ(w.members[1].from_step, 8U);
}

TEST_F(NextWorld, WithoutAMemberThatHasTheStateThereIsNone) {
  begin();
  for (const proto::MemberId id : {0, 1}) members_.edit(id)->entry.needs_state = true;
  const auto lost = form({0, 1});
  ASSERT_TRUE(std::holds_alternative<StateIsLost>(lost));
  EXPECT_EQ(std::get<StateIsLost>(lost).step, 7U);
  members_.edit(1)->proved = true;
  const proto::World w = world({0, 1});
  EXPECT_TRUE(w.members[0].needs_state);
  EXPECT_FALSE(w.members[1].needs_state) << "it has proved its copy";
}

TEST_F(NextWorld, TheStateOfACheckpointIsReadByAll) {
  begin();
  checkpoint_ = 7;
  for (const proto::MemberId id : {0, 1}) members_.edit(id)->entry.needs_state = true;
  const proto::World w = world({0, 1});
  EXPECT_FALSE(w.members[0].needs_state);
  EXPECT_EQ(w.members[0].from_step, 7U);
}

}  // namespace
}  // namespace regroup::membership
