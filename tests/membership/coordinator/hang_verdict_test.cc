// Which hung members are killed, and what the user reads.
#include "membership/coordinator/hang_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Hang : public testing::Test {
 protected:
  Hang() {
    nodes_.add(0, {.name = "a", .slots = 4});
    for (const proto::SlotIndex slot : {0, 1, 2}) {
      const proto::MemberId id = slot;
      MemberInfo& r = members_.add(id, 0, {});
      r.state = MemberState::kActive;
      world_.members.push_back({.id = id, .slot_id = {0, slot}});
      r.entry = world_.members.back();
    }
  }
  HangVerdict judge(bool long_quiet = false) {
    return judge_hang(stall_, long_quiet, world_, members_, nodes_, policy_);
  }
  proto::World world_{.generation = 1};
  MemberTable members_;
  NodeTable nodes_{false};
  Policy policy_{.on_hang = proto::OnHang::kReplace};
  ProgressWatch::Stall stall_{
      .members = {1}, .why = "keeps 2 others waiting", .minority = true, .sure = true};
};

TEST_F(Hang, AMemberIsKilledOnlyOnRequest) {
  EXPECT_THAT(judge().kill, ElementsAre(1));
  EXPECT_EQ(judge().sentence, "member 1 (host a) keeps 2 others waiting; killed (--on-hang)");
  policy_.on_hang = proto::OnHang::kReport;
  EXPECT_THAT(judge().kill, IsEmpty());
  EXPECT_EQ(judge().sentence, "member 1 (host a) keeps 2 others waiting");
}

TEST_F(Hang, TheLastMemberWithTheStateIsNotKilled) {
  for (const proto::MemberId id : {0, 2}) members_.edit(id)->entry.needs_state = true;
  EXPECT_THAT(judge().kill, IsEmpty());
  EXPECT_THAT(judge().sentence, HasSubstr("not killed (--on-hang): no other member has the state"));
}

TEST_F(Hang, AMemberThatMayBeLoadingDataIsKilledLater) {
  stall_.sure = false;
  EXPECT_THAT(judge().kill, IsEmpty());
  EXPECT_THAT(judge().sentence, HasSubstr("killed after 300 s without progress"));
  EXPECT_THAT(judge(true).kill, ElementsAre(1));
  stall_.minority = false;
  EXPECT_THAT(judge(true).kill, IsEmpty());
}

TEST_F(Hang, IfAllWaitNoneIsKilled) {
  stall_.members.clear();
  EXPECT_THAT(judge(true).kill, IsEmpty());
  EXPECT_THAT(judge().sentence, HasSubstr("which of them hangs is unknown"));
}

}  // namespace
}  // namespace regroup::membership
