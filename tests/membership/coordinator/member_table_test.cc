// The counts of MemberTable against those of all its records, while these change at random.
#include "membership/coordinator/member_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "membership/coordinator/node_table.h"

namespace regroup::membership {
namespace {

using S = MemberState;

class MemberTableTest : public testing::Test {
 protected:
  unsigned below(unsigned n) { return std::uniform_int_distribution<unsigned>(0, n - 1)(random_); }

  template <class F>
  std::uint32_t counted(F is) const {
    const auto& all = table_.all();
    return static_cast<std::uint32_t>(
        std::count_if(all.begin(), all.end(), [&](const auto& entry) { return is(entry.second); }));
  }

  void change(MemberInfo* r) {
    r->state = static_cast<S>(below(7));
    r->leave_wanted = below(3) == 0;
    r->finished = below(4) == 0;
    r->status.reset();
    if (below(2) == 0) r->status = 0;
    r->catch_up = static_cast<CatchUp>(below(4));
    r->proved = below(2) == 0;
    r->entry.replays = below(2) == 0;
    if (below(3) == 0) r->kill_at = base::TimePoint(std::chrono::seconds(1 + below(100)));
  }

  void expect_all_counted() {
    for (const S state :
         {S::kStarting, S::kWarm, S::kActive, S::kDraining, S::kDrained, S::kLost, S::kGone}) {
      EXPECT_EQ(table_.count(state),
                counted([&](const MemberInfo& r) { return r.state == state; }));
    }
    const auto stays = [](const MemberInfo& r) { return r.state <= S::kActive && !r.leave_wanted; };
    EXPECT_EQ(table_.staying(), counted(stays));
    EXPECT_EQ(table_.staying_active(),
              counted([&](const MemberInfo& r) { return stays(r) && r.state == S::kActive; }));
    EXPECT_EQ(table_.holders(), counted([&](const MemberInfo& r) {
                return stays(r) && r.state == S::kActive && r.has_state();
              }));
    EXPECT_EQ(table_.processes(), counted([](const MemberInfo& r) { return !r.reaped(); }));
    EXPECT_EQ(table_.any_finished(), counted([](const MemberInfo& r) { return r.finished; }) > 0);
    EXPECT_EQ(table_.any_lacks_results(),
              counted([](const MemberInfo& r) { return r.lacks_results(); }) > 0);
    EXPECT_EQ(table_.waiting_to_leave().size(),
              counted([](const MemberInfo& r) { return r.state == S::kActive && r.leave_wanted; }));
    for (const auto& [id, r] : table_.all()) {
      if (r.kill_at) {
        EXPECT_LE(table_.earliest_kill(), *r.kill_at);
      }
    }
    for (const auto& [node, processes] : table_.take_loads()) loads_[node] = processes;
    for (proto::NodeId node = 0; node < 4; ++node) {
      EXPECT_EQ(loads_[node], counted([&](const MemberInfo& r) {
                  return r.slot_id.node == node && !r.reaped();
                }));
    }
  }

  std::mt19937 random_{7};
  MemberTable table_;
  std::map<proto::NodeId, std::uint32_t> loads_;
};

TEST_F(MemberTableTest, CountsWhatItsRecordsSay) {
  for (int call = 0; call < 400; ++call) {
    if (below(4) == 0) (void)table_.add(table_.next_id(), below(4), {});
    if (below(20) == 0) {
      for (auto& [id, r] : table_.edit_all()) change(&r);
      expect_all_counted();
    }
    for (unsigned i = below(4); i > 0 && table_.next_id() > 0; --i) {
      MemberInfo* r = table_.edit(below(table_.next_id()));
      change(r);
      if (below(2) == 0) expect_all_counted();
      change(r);  // it may be changed as long as the call lasts
    }
    expect_all_counted();
    table_.end_edits();
    expect_all_counted();
  }
}

TEST_F(MemberTableTest, TheVersionTellsOfEveryChangeAndOfNothingElse) {
  MemberInfo& r = table_.add(0, 0, {});
  table_.end_edits();
  const std::uint64_t before = table_.version();
  table_.edit(0)->reports = 5;
  EXPECT_EQ(table_.version(), before);
  table_.edit(0)->finished = true;
  EXPECT_GT(table_.version(), before);
  EXPECT_TRUE(r.finished);
}

TEST(RestartSlots, AreUsedByMembersThatStay) {
  MemberTable members;
  EXPECT_EQ(members.free_slot(), 0U);
  for (const proto::MemberId id : {0, 1, 2}) members.add(id, 0, {}).restart_slot = id;
  EXPECT_EQ(members.free_slot(), 3U);
  members.edit(1)->state = MemberState::kLost;
  EXPECT_EQ(members.free_slot(), 1U);
}

// Against the rule itself: held ones after others with room, full ones last, then (by node) the
// fewest processes, then the lowest id.
TEST(NodeTable, TheNextPlaceIsThatOfTheRule) {
  std::mt19937 random(3);
  const auto below = [&](unsigned n) {
    return std::uniform_int_distribution<unsigned>(0, n - 1)(random);
  };
  for (const bool by_node : {false, true}) {
    NodeTable nodes(by_node);
    std::map<proto::NodeId, std::uint32_t> used;
    std::set<proto::NodeId> held;
    for (int move = 0; move < 500; ++move) {
      const proto::NodeId node = below(12);
      if (below(5) == 0 && nodes.size() > 1) nodes.erase(node);
      if (below(3) == 0) nodes.add(node, {"h", 1 + below(3)});
      nodes.set_load(node, used[node] = below(5));
      if (below(4) == 0) nodes.hold(held = {below(12), below(12), below(12)});
      if (nodes.empty()) continue;
      std::uint32_t slots = 0;
      const auto key = [&](proto::NodeId id) {
        const bool full = used[id] >= nodes.find(id)->slots;
        const bool waits = !full && held.contains(id);
        return std::tuple(full, waits, full || waits || by_node ? used[id] : 0, id);
      };
      proto::NodeId least = nodes.all().begin()->first;
      for (const auto& [id, it] : nodes.all()) {
        slots += it.slots;
        if (key(id) < key(least)) least = id;
      }
      ASSERT_EQ(nodes.next(), least);
      ASSERT_EQ(nodes.slots(), slots);
    }
  }
}

}  // namespace
}  // namespace regroup::membership
