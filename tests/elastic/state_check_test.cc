// When the members' states are compared, whose is named, and what of it. docs/design/divergence.md.
#include "elastic/state_check.h"
#include "base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "elastic/state_digest.h"
#include "tests/collective/shm/comm.h"

namespace regroup::elastic {
namespace {

using collective::testing::open_comm;
using collective::testing::Ranks;
using collective::testing::run_all;
using collective::testing::soon;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Plain values and tensors by name.
class Parts final : public State {
 public:
  [[nodiscard]] std::uint64_t capacity() const override { return 0; }
  [[nodiscard]] base::Result<std::vector<std::span<const std::byte>>> save() override {
    return base::internal_error("not asked for");
  }
  [[nodiscard]] base::Status load(std::span<const std::byte>) override { return {}; }
  [[nodiscard]] base::Status replicated(
      const std::function<void(const StatePart&)>& take) override {
    ++taken;
    for (const auto& [name, text] : values) take({name, std::as_bytes(std::span(text)), true});
    for (const auto& [name, numbers] : tensors) take({name, std::as_bytes(std::span(numbers))});
    return {};
  }

  std::map<std::string, std::string> values{{"lr", "0.1"}, {"momentum", "0.9"}};
  std::map<std::string, std::vector<float>> tensors{
      {"a", {1, 2}}, {"b", {3}}, {"c", {4, 5, 6}}, {"d", {7}}};
  int taken = 0;
};

// Members 10, 11, ... of a World of `size` that began after step 5.
proto::World world_of(std::uint32_t size) {
  proto::World world{.generation = 3, .resume = proto::Position::of(5)};
  for (std::uint32_t rank = 0; rank < size; ++rank)
    world.members.push_back({.id = 10 + rank, .slot_id = {0, static_cast<proto::SlotIndex>(rank)}});
  return world;
}

// The result of each rank after step 320 when `change` was made to its state; "equal" if nothing
// differs.
std::vector<std::string> compare(int ranks, const std::function<void(int, Parts&)>& change) {
  const auto arena = collective::testing::make_arena({.slots = static_cast<std::uint32_t>(ranks)});
  std::vector<std::string> told(static_cast<std::size_t>(ranks));
  run_all(Ranks::kThreads, ranks, [&](int rank) {
    const auto comm = open_comm(arena, rank);
    const proto::World world = world_of(static_cast<std::uint32_t>(ranks));
    std::vector<proto::MemberId> members;
    for (const proto::WorldMember& member : world.members) members.push_back(member.id);
    Parts parts;
    change(rank, parts);
    StateCheck check(true);
    const auto different = check.compare(*comm, members, world, parts, 320, soon());
    ASSERT_TRUE(different.ok()) << different.status().to_string();
    told[static_cast<std::size_t>(rank)] = different->value_or("equal");
  });
  for (const std::string& one : told) EXPECT_EQ(one, told[0]);
  return told;
}

TEST(StateCheck, EqualStatesAreEqualForAll) {
  EXPECT_EQ(compare(3, [](int, Parts&) {})[0], "equal");
  // Bits count: a NaN is equal to itself.
  const auto nan = [](int, Parts& p) {
    p.tensors["b"][0] = std::numeric_limits<float>::quiet_NaN();
  };
  EXPECT_EQ(compare(2, nan)[0], "equal");
}

TEST(StateCheck, NamesTheOddOneOfThreeWithTheFirstDifferentTensor) {
  const auto told = compare(3, [](int rank, Parts& p) {
    if (rank == 1) p.tensors["c"][2] = -6, p.tensors["d"][0] = 0;
  });
  EXPECT_THAT(told[0],
              AllOf(HasSubstr("after step 320 member 11 has another state than members 10 and 12"),
                    HasSubstr("the first tensor that differs is c;"), HasSubstr("extra=[...]"),
                    Not(HasSubstr("lr"))));
}

TEST(StateCheck, NamesBothOfTwoMembersWithTheDifferentValue) {
  const auto told = compare(2, [](int rank, Parts& p) {
    if (rank == 1) p.values["lr"] = "0.05", p.tensors["a"][0] = 0;
  });
  EXPECT_THAT(told[0], AllOf(HasSubstr("after step 320 members 10 and 11 have different states"),
                             HasSubstr("lr is 0.1 in member 10 and 0.05 in member 11"),
                             HasSubstr("the first tensor that differs is a;")));
}

TEST(StateCheck, FindsADifferenceAtEachPlaceOfTheList) {
  for (const char* name : {"a", "b", "c", "d"}) {
    const auto told =
        compare(2, [&](int rank, Parts& p) { p.tensors[name][0] += static_cast<float>(rank); });
    EXPECT_THAT(told[0], HasSubstr(std::string("the first tensor that differs is ") + name + ";"));
  }
}

TEST(StateCheck, ATensorThatOneMemberLacksIsNamed) {
  const auto last = compare(2, [](int rank, Parts& p) {
    if (rank == 1) p.tensors.erase("d");
  });
  EXPECT_THAT(last[0], HasSubstr("member 10 has d, where member 11 has nothing"));
  const auto first = compare(2, [](int rank, Parts& p) {
    if (rank == 0) p.tensors.erase("a");
  });
  EXPECT_THAT(first[0], HasSubstr("member 10 has b, where member 11 has a"));
}

TEST(StateCheck, ZerosOfAnotherSignDiffer) {
  const auto told =
      compare(2, [](int rank, Parts& p) { p.tensors["b"][0] = rank == 0 ? 0.0F : -0.0F; });
  EXPECT_THAT(told[0], HasSubstr("the first tensor that differs is b;"));
}

TEST(StateCheck, EscapesControlCharactersInNames) {
  const auto told =
      compare(2, [](int rank, Parts& p) { p.tensors["a\033[2J"] = {static_cast<float>(rank)}; });
  EXPECT_THAT(told[0], HasSubstr("a\\x1b[2J;"));
}

TEST(StateCheck, LongListsOfMembersAreCut) {
  EXPECT_EQ(list_members({3}), "member 3");
  EXPECT_EQ(list_members({1, 4, 5}), "members 1, 4 and 5");
  EXPECT_EQ(list_members({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}),
            "members 0, 1, 2, 3, 4, 5, 6, 7 and 3 more");
}

TEST(StateCheck, TheMajorityOrTheLowestRankDecides) {
  EXPECT_EQ(most_agree({7, 8, 8}), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(most_agree({8, 7}), (std::vector<bool>{true, false}));
}

TEST(StateCheck, IsDueAtIntervalsSoonAfterAChangeAndForSnapshots) {
  StateCheck check(true);
  proto::World world = world_of(2);
  std::vector<proto::Step> due;
  for (proto::Step step = 5; step <= 600; ++step) {
    if (check.due(world, step)) due.push_back(step);
  }
  EXPECT_EQ(due, (std::vector<proto::Step>{6, 13, 69, 256, 512}));
  check.await_save(3, 40);
  EXPECT_TRUE(check.due(world, 40));
  EXPECT_FALSE(check.due(world, 41));
  world.generation = 4;  // the save was of members that are in no World any more
  EXPECT_FALSE(check.due(world, 40));
}

TEST(StateCheck, OneMemberOrOtherBitsAreNotCompared) {
  EXPECT_FALSE(StateCheck(true).due(world_of(1), 256));
  EXPECT_FALSE(StateCheck(false).due(world_of(2), 256));
}

TEST(StateCheck, TheIntervalFollowsFromTheCost) {
  constexpr std::uint64_t kStep = 20'000;  // microseconds
  EXPECT_EQ(interval_for(0, 0), kCheckInterval);
  EXPECT_EQ(interval_for(51'200, kStep), kCheckInterval);  // 1 % of 256 steps
  EXPECT_EQ(interval_for(51'300, kStep), 2 * kCheckInterval);
  EXPECT_EQ(interval_for(1'000'000, kStep), 32 * kCheckInterval);
}

// The caller's last changes, to a model that is exported say, are no part of the training.
TEST(StateCheck, ComparesThePreparedState) {
  const auto arena = collective::testing::make_arena({.slots = 2});
  run_all(Ranks::kThreads, 2, [&](int rank) {
    const auto comm = open_comm(arena, rank);
    Parts parts;
    StateCheck check(true);
    ASSERT_TRUE(check.prepare(parts, 320).ok());
    parts.tensors["a"][0] = static_cast<float>(rank);
    const auto different = check.compare(*comm, {0, 1}, world_of(2), parts, 320, soon());
    ASSERT_TRUE(different.ok());
    EXPECT_FALSE(different->has_value()) << **different;
    EXPECT_EQ(parts.taken, 1);
  });
}

}  // namespace
}  // namespace regroup::elastic
