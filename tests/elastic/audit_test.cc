// Which leaf is audited by whom, and whose bits are found wrong. docs/design/audit.md.
#include "elastic/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/collective/shm/comm.h"

namespace regroup::elastic {
namespace {

using collective::testing::open_comm;
using collective::testing::Ranks;
using collective::testing::run_all;
using collective::testing::soon;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::uint32_t kShards = 8;

// Members 10, 11, ... of a World of `size` that began after step 5.
proto::World world_of(std::uint32_t size) {
  proto::World world{.generation = 3, .resume = proto::Position::of(5), .shards = kShards};
  for (std::uint32_t rank = 0; rank < size; ++rank)
    world.members.push_back({.id = 10 + rank, .slot_id = {0, static_cast<proto::SlotIndex>(rank)}});
  return world;
}

TEST(AuditPlan, SpreadsOverLeavesAndPairs) {
  const proto::World world = world_of(4);
  std::set<std::uint32_t> leaves;
  std::set<std::pair<int, int>> pairs;
  for (proto::Step step = 7; step < 2007; ++step) {
    const auto plan = plan_audit(world, step, 1, 42);
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->owner, world.rank_of(proto::owners_of(world, step)[plan->leaf]));
    EXPECT_EQ((std::set{plan->owner, plan->second, plan->third}.size()), 3U);
    leaves.insert(plan->leaf);
    pairs.emplace(plan->owner, plan->second);
  }
  EXPECT_EQ(leaves.size(), kShards);
  EXPECT_EQ(pairs.size(), 12U);
}

TEST(AuditPlan, LeavesStepsOutThatCannotBeAudited) {
  EXPECT_FALSE(plan_audit(world_of(3), 10, 0, 42));
  EXPECT_FALSE(plan_audit(world_of(3), 10, 3, 42));
  EXPECT_TRUE(plan_audit(world_of(3), 12, 3, 42));
  EXPECT_FALSE(plan_audit(world_of(3), 6, 1, 42)) << "its leaves may be those of another World";
  EXPECT_TRUE(plan_audit(world_of(3), 7, 1, 42));
  EXPECT_FALSE(plan_audit(world_of(1), 7, 1, 42));
  EXPECT_EQ(plan_audit(world_of(2), 7, 1, 42)->third, -1);
}

TEST(AuditPlan, AsksNoMemberThatHasNoStateYet) {
  proto::World world = world_of(3);
  world.members[1].from_step = 1000;
  for (proto::Step step = 7; step < 107; ++step) {
    const auto plan = plan_audit(world, step, 1, 42);
    if (!plan) continue;  // a leaf of that member, which owns some
    EXPECT_NE(plan->owner, 1);
    EXPECT_NE(plan->second, 1);
    EXPECT_EQ(plan->third, -1);
  }
}

struct Outcome {
  Audit::Finding finding;
  int computed = 0;  // how often this rank was asked for the leaf as second or third one
};

// Rank r of the members with `bits` computes bits[r].
std::vector<Outcome> audit(const std::vector<char>& bits) {
  const int size = static_cast<int>(bits.size());
  const proto::World world = world_of(static_cast<std::uint32_t>(size));
  const auto arena =
      collective::testing::make_arena({.slots = static_cast<std::uint32_t>(bits.size())});
  std::vector<Outcome> out(bits.size());
  run_all(Ranks::kThreads, size, [&](int rank) {
    const auto comm = open_comm(arena, rank);
    const AuditPlan plan{5, 0, 1, size > 2 ? 2 : -1};
    Audit audit;
    audit.begin(plan, 812, rank);
    Outcome own;
    const auto take = [&] {
      audit.take(std::as_bytes(std::span(&bits[static_cast<std::size_t>(rank)], 1)));
    };
    if (rank == plan.owner) {
      EXPECT_TRUE(audit.compares(5));
      EXPECT_FALSE(audit.compares(4));
      take();
    }
    while (audit.active()) {
      if (audit.leaf_to_compute()) {
        EXPECT_TRUE(audit.compares(5));
        own.computed += 1;
        take();
      }
      auto finding = audit.compare(*comm, world, soon());
      ASSERT_TRUE(finding.ok()) << finding.status().to_string();
      own.finding = *finding;
    }
    out[static_cast<std::size_t>(rank)] = own;
  });
  return out;
}

TEST(Audit, SaysNothingOfEqualBits) {
  const auto all = audit({'a', 'a', 'a'});
  for (const Outcome& one : all) EXPECT_EQ(one.finding.difference, "");
  EXPECT_EQ(all[1].computed, 1);
  EXPECT_EQ(all[2].computed, 0) << "nothing is to be decided";
}

TEST(Audit, FindsWhoseBitsTwoOthersDoNotHave) {
  for (const int wrong : {0, 1}) {
    std::vector<char> bits{'a', 'a', 'a', 'a'};
    bits[static_cast<std::size_t>(wrong)] = 'b';
    const auto all = audit(bits);
    for (int rank = 0; rank < 4; ++rank) {
      const Audit::Finding& finding = all[static_cast<std::size_t>(rank)].finding;
      EXPECT_EQ(finding.difference,
                std::string("audit: leaf 5 of step 812: member 1") + (wrong == 0 ? "0" : "1") +
                    " computed other bits than members 1" + (wrong == 0 ? "1" : "0") +
                    " and 12: its processor, memory or GPU may be faulty");
      EXPECT_EQ(finding.own_fault, rank == wrong);
      EXPECT_FALSE(finding.undecided);
    }
    EXPECT_EQ(all[2].computed, 1);
    EXPECT_EQ(all[3].computed, 0);
  }
}

TEST(Audit, TellsOfADifferenceThatARevokeLeavesUndecided) {
  const auto arena = collective::testing::make_arena({.slots = 3});
  std::vector<std::string> told(3);
  run_all(Ranks::kThreads, 3, [&](int rank) {
    const auto comm = open_comm(arena, rank);
    const proto::World world = world_of(3);
    Audit audit;
    audit.begin(AuditPlan{5, 0, 1, 2}, 812, rank);
    const char bits = static_cast<char>('a' + rank);
    if (rank < 2) audit.take(std::as_bytes(std::span(&bits, 1)));
    if (rank == 0) {
      Audit other;  // nothing was compared
      other.begin(AuditPlan{5, 0, 1, 2}, 812, rank);
      EXPECT_EQ(other.drop(world), "");
    }
    ASSERT_TRUE(audit.compare(*comm, world, soon()).ok());
    told[static_cast<std::size_t>(rank)] = audit.drop(world);
    EXPECT_FALSE(audit.active());
  });
  EXPECT_THAT(told[0], StartsWith("audit: leaf 5 of step 812: members 10 and 11 computed different "
                                  "bits, and the World changed before"));
  EXPECT_EQ(told[1] + told[2], "");
}

TEST(Audit, BlamesNobodyIfNoTwoAgree) {
  for (const Outcome& one : audit({'a', 'b', 'c'})) {
    EXPECT_TRUE(one.finding.undecided);
    EXPECT_FALSE(one.finding.own_fault);
    EXPECT_THAT(one.finding.difference,
                StartsWith("audit: leaf 5 of step 812: members 10, 11 and 12 computed different"));
  }
  for (const Outcome& one : audit({'a', 'b'})) {
    EXPECT_TRUE(one.finding.undecided);
    EXPECT_THAT(one.finding.difference, HasSubstr("with two members it cannot be known"));
  }
}

}  // namespace
}  // namespace regroup::elastic
