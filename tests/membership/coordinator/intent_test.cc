// What a journaled Intent holds, and that each part continues from it as it was.
#include <gtest/gtest.h>

#include "membership/coordinator/job_size.h"
#include "membership/coordinator/launch_until_join.h"
#include "membership/coordinator/member_table.h"

namespace regroup::membership {
namespace {

using Mark = Intent::Mark;

constexpr base::TimePoint kJournaled{std::chrono::seconds(1000)};

// The members 0 to 2 of a World that resumes after step 9, on nodes 5 to 7.
proto::World journaled_world() {
  proto::World w{.generation = 4};
  w.resume = proto::Position::of(9);
  for (const proto::MemberId id : {0, 1, 2})
    w.members.push_back({.id = id, .slot_id = {static_cast<proto::NodeId>(5 + id), 1}});
  return w;
}

TEST(SavedIntent, HasTheSizeWithoutLeases) {
  JobSize size({.min = 1, .max = 8, .target = 4, .slots = 8});
  size.request(5);
  size.leave_one();
  Intent saved;
  size.save(&saved);
  EXPECT_EQ(saved.target, 4U);
  EXPECT_EQ(saved.desired, 4U);
  EXPECT_EQ(saved.said, 4U);
  JobSize later({.min = 1, .max = 8, .target = 0, .slots = 8});
  later.restore(saved);
  EXPECT_EQ(later.target(), 4U);
  EXPECT_FALSE(later.follows_hosts());
  EXPECT_TRUE(later.is_journaled());
}

TEST(SavedIntent, HasTheRelaunchesAndTheFirstMemberOfTheLaunch) {
  LaunchUntilJoin launch({.max_restarts = 9}, 1, 2);
  MemberTable members;
  for (const proto::MemberId first : {0, 2}) {
    (void)launch.begin(kJournaled, 2, first);
    MemberInfo& r = members.add(first, 0, kJournaled);
    r.state = MemberState::kGone;
    r.status = 1;
    (void)launch.on_end(kJournaled, r, "exited with status 1", members);
  }
  Intent saved;
  launch.save(&saved);
  EXPECT_EQ(saved.restarts, 1U);
  EXPECT_EQ(saved.first_member, 2U);
  LaunchUntilJoin later({.max_restarts = 9}, 1, 2);
  later.restore(saved);
  EXPECT_EQ(later.restarts(), 1U);
  EXPECT_EQ(later.first_member(), 2U);
}

TEST(SavedIntent, MarksMembersOfTheWorldThatAreNotSimplyActive) {
  MemberTable members;
  members.restore(journaled_world());
  Intent saved;
  members.save(&saved);
  EXPECT_TRUE(saved.marks.empty());
  EXPECT_EQ(saved.next_member, 3U);
  members.edit(0)->leave_wanted = true;
  members.edit(1)->state = MemberState::kDrained;
  members.add(7, 0, kJournaled).leave_wanted = true;  // a starting one
  members.promise_below(20);
  members.save(&saved);
  EXPECT_EQ(saved.marks, (std::vector<Mark>{{0, MemberState::kActive, true},
                                            {1, MemberState::kDrained, false}}));
  EXPECT_EQ(saved.next_member, 20U);
  MemberTable later;
  later.restore(journaled_world());
  later.restore(saved);
  EXPECT_TRUE(later.find(0)->leave_wanted);
  EXPECT_EQ(later.find(1)->state, MemberState::kDrained);
  EXPECT_EQ(later.find(7), nullptr) << "an agent reports it if it runs";
  EXPECT_EQ(later.next_id(), 20U);
}

TEST(SavedIntent, MarksOfMembersThatTheWorldHasNotAreIgnored) {
  MemberTable members;
  members.restore(journaled_world());
  Intent other;
  other.marks.push_back({8, MemberState::kLost, false});
  members.restore(other);
  EXPECT_EQ(members.all().size(), 3U);
}

TEST(JournaledWorld, HasActiveMembersInRankOrder) {
  MemberTable members;
  members.restore(journaled_world());
  const MemberInfo& last = *members.find(2);
  EXPECT_EQ(last.rank, 2);
  EXPECT_EQ(last.slot_id, (proto::SlotId{7, 1}));
  EXPECT_EQ(last.state, MemberState::kActive);
  EXPECT_EQ(last.entered_at, 9U);
  EXPECT_NE(last.entered, base::TimePoint{}) << "it has been in a World";
  EXPECT_TRUE(members.on_node(7).contains(2));
}

}  // namespace
}  // namespace regroup::membership
