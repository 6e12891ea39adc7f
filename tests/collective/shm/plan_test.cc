// Which algorithm an operation uses, and what is kept of recent ones; without a communicator.
#include "collective/shm/plan.h"

#include <gtest/gtest.h>

#include <vector>

#include "collective/shm/bounce_buffer.h"
#include "collective/shm/plan_cache.h"
#include "tests/collective/reference.h"

namespace regroup::collective::testing::shm_plan {
namespace {

constexpr std::size_t kKiB = 1 << 10;

struct Row {
  Kind kind;
  std::size_t bytes;  // of a block
  int ranks;
  shm::Travel travel;
  bool by_slices;
  bool shares_cores = false;
};

Operation operation_of(Kind kind, const Bytes& memory, std::size_t bytes, int ranks) {
  const auto all = std::span(const_cast<Bytes&>(memory));
  const std::size_t whole = bytes * static_cast<std::size_t>(ranks);
  const bool split = is_split(kind);
  Operation o{.kind = kind, .dtype = Dtype::kFloat32};
  o.in = kind == Kind::kBroadcast ? Input() : Input(all.first(split ? whole : bytes));
  o.out = all.last(kind == Kind::kAllgather || kind == Kind::kAlltoall ? whole : bytes);
  return o;
}

TEST(ShmPlan, ChoosesHowContributionsTravel) {
  const Bytes memory(32 << 20);
  const Row rows[] = {
      {Kind::kAllreduce, 56, 2, shm::Travel::kInArrivals, false},
      {Kind::kAllreduce, 60, 2, shm::Travel::kInOneChunk, false},
      {Kind::kAllreduce, 4 * kKiB, 2, shm::Travel::kInOneChunk, false},
      {Kind::kAllreduce, 4 * kKiB + 4, 2, shm::Travel::kInChunks, false},
      {Kind::kAllreduce, 16 * kKiB, 2, shm::Travel::kInChunks, false},
      {Kind::kAllreduce, 16 * kKiB + 4, 2, shm::Travel::kInChunks, true},
      {Kind::kAllreduce, 16 * kKiB, 2, shm::Travel::kInOneChunk, false, true},
      {Kind::kReduce, 64 * kKiB, 2, shm::Travel::kInChunks, false},
      {Kind::kReduce, 64 * kKiB + 4, 2, shm::Travel::kInChunks, true},
      {Kind::kAllgather, 8 * kKiB, 4, shm::Travel::kInOneChunk, false},
      {Kind::kAllgather, 8 * kKiB + 4, 4, shm::Travel::kInChunks, false},
      {Kind::kBroadcast, 32 * kKiB, 4, shm::Travel::kInOneChunk, false},
      {Kind::kBroadcast, 32 * kKiB + 4, 4, shm::Travel::kInChunks, false},
      {Kind::kAlltoall, 8 * kKiB, 4, shm::Travel::kInOneChunk, false},
      {Kind::kAlltoall, 8 * kKiB + 4, 4, shm::Travel::kInChunks, false},
  };
  for (const Row& row : rows) {
    const Operation o = operation_of(row.kind, memory, row.bytes, row.ranks);
    const shm::Planning with{0, row.ranks, row.shares_cores, shm::InlineMode::kNever,
                             shm::SlotRing::kLargeRing};
    const shm::Plan plan = shm::plan_of(o, with, false, false);
    SCOPED_TRACE(std::string(name_of(row.kind)) + " of " + std::to_string(row.bytes));
    EXPECT_EQ(plan.block, row.bytes);
    EXPECT_EQ(plan.travel, row.travel);
    EXPECT_EQ(plan.by_slices, row.by_slices);
    EXPECT_EQ(plan.route, shm::Route::kAsItTravels);
    EXPECT_LE(plan.placed, shm::kChunk);
  }
}

TEST(ShmPlan, UsesInlineChunksOnlyWhereNothingForbidsThem) {
  const Bytes memory(4 * kKiB);
  const Operation o = operation_of(Kind::kAllgather, memory, 500, 2);
  const auto travel = [&](shm::InlineMode mode, bool closes, bool shares_cores) {
    return shm::plan_of(o, {0, 2, shares_cores, mode, shm::SlotRing::kLargeRing}, closes, false)
        .travel;
  };
  EXPECT_EQ(travel(shm::InlineMode::kAlways, false, false), shm::Travel::kInInlineChunks);
  EXPECT_EQ(travel(shm::InlineMode::kNever, false, false), shm::Travel::kInOneChunk);
  EXPECT_EQ(travel(shm::InlineMode::kAlways, true, false), shm::Travel::kInOneChunk);
  EXPECT_EQ(travel(shm::InlineMode::kAlways, false, true), shm::Travel::kInOneChunk);
}

// With several ranks, only a rank that alone contributes or receives may leave early.
TEST(ShmPlan, LetsOnlyRanksThatReceiveNothingExitEagerly) {
  const Bytes memory(64 * kKiB);
  const auto exits = [&](Kind kind, int rank, int root) {
    Operation o = operation_of(kind, memory, kKiB, 3);
    o.root = root;
    return shm::plan_of(o, {rank, 3, false, shm::InlineMode::kNever, shm::SlotRing::kLargeRing},
                        false, false)
        .exits_eagerly;
  };
  EXPECT_TRUE(exits(Kind::kBroadcast, 1, 1));
  EXPECT_FALSE(exits(Kind::kBroadcast, 0, 1));
  EXPECT_FALSE(exits(Kind::kReduce, 1, 1));
  EXPECT_TRUE(exits(Kind::kReduce, 0, 1));
  EXPECT_FALSE(exits(Kind::kAllreduce, 0, 0));
}

// A communicator of many ranks, or a part of one over several hosts, pays more for each point.
TEST(ShmPlan, CutsSmallerChunksForFewRanks) {
  const Bytes memory(4 << 20);
  const Operation o = operation_of(Kind::kAllreduce, memory, 1 << 20, 4);
  const auto piece = [&](int ranks, bool is_part) {
    return shm::plan_of(o, {0, ranks, false, shm::InlineMode::kNever, shm::SlotRing::kLargeRing},
                        false, is_part)
        .piece;
  };
  EXPECT_EQ(piece(4, false), shm::kChunk / 2);
  EXPECT_EQ(piece(5, false), shm::kChunk);
  EXPECT_EQ(piece(4, true), shm::kChunk);
}

class ShmPlanCache : public ::testing::Test {
 protected:
  [[nodiscard]] Operation operation(std::size_t number) {
    return Operation::broadcast(std::span(memory_).subspan(number, 1), 0);
  }
  const shm::CachedPlan* add(std::size_t number) {
    const shm::CachedPlan plan{.operation = operation(number), .count = number};
    return &cache_.add(plan);
  }

  Bytes memory_ = Bytes(1000);
  shm::PlanCache cache_;
};

TEST_F(ShmPlanCache, FindsEqualOperationsOnly) {
  EXPECT_EQ(cache_.find(operation(1)), nullptr);
  EXPECT_EQ(cache_.find(Operation()), nullptr) << "nothing was added";
  const shm::CachedPlan* const one = add(1);
  const shm::CachedPlan* const two = add(2);
  EXPECT_EQ(cache_.find(operation(1)), one);
  EXPECT_EQ(cache_.find(operation(2)), two);
  Operation other = operation(1);
  other.root = 1;
  EXPECT_EQ(cache_.find(other), nullptr);
  other = operation(1);
  other.out = std::span(memory_).subspan(1, 2);
  EXPECT_EQ(cache_.find(other), nullptr);
}

TEST_F(ShmPlanCache, KeepsTheLatest) {
  for (std::size_t i = 0; i <= shm::PlanCache::kEntries; ++i) add(i);
  EXPECT_EQ(cache_.find(operation(0)), nullptr);
  for (std::size_t i = 1; i <= shm::PlanCache::kEntries; ++i) {
    const shm::CachedPlan* const found = cache_.find(operation(i));
    ASSERT_NE(found, nullptr) << i;
    EXPECT_EQ(found->count, i);
  }
}

// Whatever the order, also with operations that run twice in a row.
TEST_F(ShmPlanCache, FindsThemInEveryOrder) {
  for (std::size_t i = 0; i < 5; ++i) add(i);
  const std::size_t order[] = {0, 1, 1, 2, 0, 1, 1, 3, 3, 3, 4, 0, 1, 1, 2, 4, 4, 0};
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t i : order) {
      const shm::CachedPlan* const found = cache_.find(operation(i));
      ASSERT_NE(found, nullptr);
      ASSERT_EQ(found->count, i);
    }
  }
}

}  // namespace
}  // namespace regroup::collective::testing::shm_plan
