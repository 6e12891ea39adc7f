// What a store does at its limits: an index that is full, a log ring that is full, a client that is
// gone while its pushes wait, segments that are missing, and a takeover without free memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "collective/ps/index.h"
#include "tests/collective/ps/small_store.h"

namespace regroup::collective::ps::testing::limits {
namespace {

using Outcome = Appended::Outcome;

constexpr PositionRange kAll{0, ~0ULL};
TableSpec counts(std::uint32_t dim = 1) {
  return {.name = "counts", .kind = TableKind::kHash, .dim = dim, .dtype = Dtype::kInt64};
}
// Adds 1 to each position, as client `client`.
OwnedPush ones(std::uint64_t number, std::vector<std::uint64_t> positions, std::uint32_t dim = 1,
               std::uint64_t client = 1) {
  std::ranges::sort(positions);
  const std::vector<std::int64_t> gradient(positions.size() * dim, 1);
  return push_of(client, number, number - 1, std::move(positions), gradient);
}
std::int64_t value(const Range& range, std::uint64_t position) {
  return values_of<std::int64_t>(*range.reader(), {position}).front();
}

// The position with this hash: mix64() backwards.
std::uint64_t position_with(std::uint64_t hash) {
  const auto inverse = [](std::uint64_t odd) {  // modulo 2^64, by Newton's iteration
    std::uint64_t x = odd;
    for (int i = 0; i < 6; ++i) x *= 2 - odd * x;
    return x;
  };
  const auto unshift = [](std::uint64_t x, int by) {
    std::uint64_t out = x;
    for (int at = by; at < 64; at += by) out = x ^ out >> by;
    return out;
  };
  std::uint64_t x = unshift(hash, 31) * inverse(0x94d049bb133111ebULL);
  x = unshift(x, 27) * inverse(0xbf58476d1ce4e5b9ULL);
  return unshift(x, 30) ^ 0x9e3779b97f4a7c15ULL;
}

// All keys have the same first 14 bits of their hash, so one page gets them, whatever is split.
TEST(PsLimits, APushThatTheIndexCannotHoldIsRefusedAndOthersGoOn) {
  SmallStore store;
  auto server = Store::attach(store.memory).value();
  Range* range = *server->open_range(1, counts(), kAll);
  const auto crowded = [](std::uint64_t i) { return position_with(0xabcULL << 52 | i << 20); };
  ASSERT_EQ(index_hash(crowded(7)), 0xabcULL << 52 | 7 << 20);
  std::uint64_t number = 0;
  for (std::uint64_t key = 0; key < kFullPage; key += 32) {
    std::vector<std::uint64_t> keys;
    for (std::uint64_t i = 0; i < 32; ++i) keys.push_back(crowded(key + i));
    ASSERT_EQ(range->append(ones(++number, keys).get()).status().to_string(), "ok");
    // Every other push waits in the log, where it has its room, too.
    if (key % 64 == 0) continue;
    ASSERT_EQ(range->apply(range->newest()).to_string(), "ok");
    server->release_log();
  }
  const auto refused = range->append(ones(number + 1, {5, crowded(kFullPage)}).get());
  EXPECT_EQ(
      refused.status().to_string(),
      base::resource_exhausted("store: the index of range 1 is full; the table needs more ranges")
          .to_string());
  EXPECT_EQ(range->newest(), number);
  EXPECT_EQ(IndexRoot::of(range->header().root.load()).depth, kMaxDepth);
  // The next pushes, of old and of other keys, are as ever; and so they are after a takeover.
  for (int life = 0; life < 2; ++life) {
    ASSERT_TRUE(range->append(ones(++number, {5, crowded(0)}).get()).ok());
    ASSERT_EQ(range->apply(range->newest()).to_string(), "ok");
    EXPECT_EQ(range->append(ones(number + 1, {crowded(kFullPage)}).get()).code(),
              base::Code::kResourceExhausted);
    server = Store::attach(store.memory).value();
    range = server->range(1);
  }
  EXPECT_EQ(range->rows(), kFullPage + 1);
  EXPECT_EQ(value(*range, 5), 2);
  EXPECT_EQ(value(*range, crowded(0)), 3);
  EXPECT_EQ(value(*range, crowded(kFullPage)), 0);
}

// Two ranges fill the ring, at each place of it, and no push is committed.
TEST(PsLimits, AFullRingCanBeDiscardedFrom) {
  for (std::uint64_t before = 0; before < 60; ++before) {
    SmallStore store(512 << 10, 8, 16 << 10);
    auto server = Store::attach(store.memory).value();
    Range* const ranges[] = {*server->open_range(1, counts(), kAll),
                             *server->open_range(2, counts(), kAll)};
    for (std::uint64_t number = 1; number <= before; ++number) {
      ASSERT_TRUE(ranges[0]->append(ones(number, {1, 2, 3}).get()).ok());
      ASSERT_TRUE(ranges[0]->apply(ranges[0]->newest()).ok());
      server->release_log();
    }
    const std::uint64_t kept = ranges[0]->newest();
    for (bool full = false; !full;) {
      for (Range* const range : ranges) {
        const auto appended = range->append(ones(range->last_of(1) + 1, {5, 6}).get());
        full = full || appended.code() == base::Code::kUnavailable;
      }
    }
    EXPECT_GT(ranges[1]->newest(), 10U);
    ASSERT_EQ(ranges[1]->discard_after(0).to_string(), "ok") << before;
    ASSERT_EQ(ranges[0]->discard_after(kept).to_string(), "ok") << before;
    server->release_log();
    server = Store::attach(store.memory).value();
    EXPECT_EQ(server->range(1)->newest(), kept);
    EXPECT_EQ(server->range(2)->newest(), 0U);
    EXPECT_EQ(server->range(2)->append(ones(1, {9}).get())->outcome, Outcome::kAppended);
  }
}

TEST(PsLimits, AClientThatIsDroppedWhileItsPushWaitsIsNotRemembered) {
  SmallStore store;
  auto server = Store::attach(store.memory).value();
  Range* range = *server->open_range(1, counts(), kAll);
  ASSERT_TRUE(range->append(ones(1, {9}).get()).ok());
  range->drop_client(1);
  ASSERT_TRUE(range->apply(range->newest()).ok());
  EXPECT_EQ(value(*range, 9), 1) << "it was committed";
  EXPECT_EQ(range->last_of(1), 0U);
  server = Store::attach(store.memory).value();
  EXPECT_EQ(server->range(1)->last_of(1), 0U) << "its words are free";
  // The same with a discard of a later push in between.
  range = server->range(1);
  ASSERT_TRUE(range->append(ones(1, {9}, 1, 2).get()).ok());
  ASSERT_TRUE(range->append(ones(2, {9}, 1, 2).get()).ok());
  range->drop_client(2);
  ASSERT_TRUE(range->discard_after(2).ok());
  EXPECT_EQ(range->last_of(2), 0U);
  ASSERT_TRUE(range->apply(2).ok());
  EXPECT_EQ((*Store::attach(store.memory))->range(1)->last_of(2), 0U);
  EXPECT_EQ(range->append(ones(1, {9}, 1, ~0ULL).get()).status().message(),
            "push: expected a client below 18446744073709551615");
}

TEST(PsLimits, AStoreWithASegmentMissingIsRefused) {
  SmallStore store(128 << 10, 8, 16 << 10);
  store.grow();
  auto server = Store::attach(store.memory).value();
  // A segment has two blocks: the head and this range are the first one.
  ASSERT_TRUE(server->open_range(1, counts(), kAll).ok());
  ASSERT_TRUE(server->open_range(2, counts(), kAll).ok());
  const auto fewer = StoreMemory::open(store.segments[0].get(), 8, StoreMemory::Mode::kWrite);
  EXPECT_EQ(Store::attach(*fewer).status().message(), "store: expected 2 segments, got 1");
  EXPECT_EQ(server->open_range(3, counts(), {7, 6}).status().message(),
            "table counts: range 3 from 7 to 6 has no position");
}

// The successor of a large range takes new blocks first, and looks for free slots when there are
// none.
TEST(PsLimits, ATakeoverNeedsNoMemoryAndReadsTheIndexLast) {
  SmallStore store;
  std::uint64_t number = 0;
  {
    const auto server = Store::attach(store.memory).value();
    Range* const range = *server->open_range(1, counts(), kAll);
    while (IndexRoot::of(range->header().root.load()).depth <= kSmallDepth) {
      if (store.memory.segments() < 7) store.grow();
      std::vector<std::uint64_t> keys;
      for (std::uint64_t i = 0; i < 64; ++i) keys.push_back(number * 64 + i);
      ASSERT_TRUE(range->append(ones(++number, keys).get()).ok());
      ASSERT_TRUE(range->apply(number).ok());
      server->release_log();
    }
  }
  const std::uint64_t filled = number;
  for (bool full = false; !full;) {
    const auto server = Store::attach(store.memory).value();
    const std::uint64_t free = server->free_bytes();
    full = free == 0;
    ASSERT_EQ(server->range(1)->append(ones(++number, {1, 2, 3}).get()).status().to_string(), "ok");
    if (!full) {
      EXPECT_LT(server->free_bytes(), free) << "it has looked for free slots";
    }
    ASSERT_EQ(server->range(1)->apply(number).to_string(), "ok");
    server->release_log();
  }
  // The push waits, and the successor that applies it has no block.
  const std::uint64_t next = filled * 64;
  ASSERT_TRUE(
      (*Store::attach(store.memory))->range(1)->append(ones(++number, {3, next}).get()).ok());
  const auto server = Store::attach(store.memory).value();
  ASSERT_EQ(server->range(1)->apply(number).to_string(), "ok");
  EXPECT_EQ(value(*server->range(1), 3), static_cast<std::int64_t>(number - filled + 1));
  EXPECT_EQ(value(*server->range(1), next), 1);
  EXPECT_EQ(server->range(1)->rows(), next + 1);
}

TEST(PsLimits, TheNumberOfUpdatesStaysAtItsGreatestValue) {
  SmallStore store;
  auto server = Store::attach(store.memory).value();
  TableSpec spec = counts(2);
  spec.dtype = Dtype::kFloat32;
  spec.optimizer = {.kind = OptimizerKind::kLazyAdam};
  Range* const range = *server->open_range(1, spec, kAll);
  const std::vector<float> gradient{1, -1};
  for (std::uint64_t number = 1; number <= 3; ++number) {
    ASSERT_TRUE(range->append(push_of(1, number, number - 1, {7}, gradient, 0.1).get()).ok());
    ASSERT_TRUE(range->apply(number).ok());
    const IndexPlace place =
        find_in_index(store.memory, IndexRoot::of(range->header().root.load()), 7);
    std::uint32_t& updates = row_at(store.memory, slot_of(place.value))->updates;
    if (number == 1) updates = std::numeric_limits<std::uint32_t>::max() - 1;
    if (number > 1) {
      EXPECT_EQ(updates, std::numeric_limits<std::uint32_t>::max());
    }
    for (const float one : values_of<float>(*range->reader(), {7}))
      EXPECT_TRUE(std::isfinite(one)) << number;
  }
}

}  // namespace
}  // namespace regroup::collective::ps::testing::limits
