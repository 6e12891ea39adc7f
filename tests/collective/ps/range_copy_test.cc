// Copies of ranges for checkpoints: each is a prefix of the range's log, whatever its server does
// meanwhile; rows that are put back go on as if they had never been away.
#include "collective/ps/range_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "tests/collective/ps/served.h"
#include "tests/collective/ps/small_store.h"

namespace regroup::collective::ps::testing::range_copy {
namespace {

constexpr PositionRange kAll{0, ~0ULL};

base::TimePoint soon() { return in(std::chrono::seconds(10)); }

void apply(Range& range, const OwnedPush& push) {
  const auto appended = range.append(push.get());
  ASSERT_TRUE(appended.ok()) << appended.status().to_string();
  ASSERT_TRUE(range.apply(range.newest()).ok());
}

std::vector<TableSpec> specs() {
  return {{.name = "rows",
           .kind = TableKind::kHash,
           .dim = 3,
           .init = {InitialKind::kUniform, -1, 1},
           .optimizer = {.kind = OptimizerKind::kLazyAdam}},
          {.name = "halves",
           .kind = TableKind::kDirect,
           .rows = 100,
           .dim = 3,
           .dtype = Dtype::kFloat16,
           .optimizer = {.kind = OptimizerKind::kRowAdagrad}},
          {.name = "dense",
           .kind = TableKind::kDense,
           .rows = 5,
           .init = {InitialKind::kNormal, 0, 1},
           .optimizer = {.kind = OptimizerKind::kAdam}}};
}

// Pushes number `first` to `last` of a client, of known gradients.
void push_some(Range& range, std::uint64_t first, std::uint64_t last) {
  const bool dense = range.spec().kind == TableKind::kDense;
  for (std::uint64_t n = first; n <= last; ++n) {
    std::vector<std::uint64_t> positions;
    if (!dense) positions = {n % 7, 7 + n % 50, 60 + n % 3};
    const std::size_t elements = dense ? 5 : 9;
    std::vector<float> gradients(elements);
    for (std::size_t i = 0; i < elements; ++i)
      gradients[i] = static_cast<float>(n + i) / static_cast<float>(16 + n % 5);
    OwnedPush push = push_of(0, n, 0, positions, gradients, 0.125);
    apply(range, push);
  }
}

// A store with one range.
struct OneRange {
  explicit OneRange(const TableSpec& spec) {
    auto attached = Store::attach(small.memory);
    EXPECT_TRUE(attached.ok()) << attached.status().to_string();
    writer = std::move(*attached);
    const PositionRange positions = spec.kind == TableKind::kDense ? PositionRange{0, spec.rows - 1}
                                    : spec.kind == TableKind::kDirect
                                        ? PositionRange{0, spec.rows - 1}
                                        : kAll;
    range = *writer->open_range(1, spec, positions);
  }
  [[nodiscard]] RangeCopy copy() const {
    auto out = copy_range(small.memory, range->header(), soon());
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    return std::move(*out);
  }
  SmallStore small{512 << 10, 8, 32 << 10};
  std::unique_ptr<Store> writer;
  Range* range;
};

TEST(PsRangeCopy, ARestoredRangeGoesOnAsIfNothingHadHappened) {
  for (const TableSpec& spec : specs()) {
    SCOPED_TRACE(spec.name);
    OneRange one(spec), other(spec);
    push_some(*one.range, 1, 60);
    const RangeCopy copy = one.copy();
    EXPECT_EQ(copy.lsn, 60U);
    EXPECT_TRUE(std::ranges::is_sorted(copy.positions));
    const base::Status restored = other.range->restore(copy.view(), 4);
    ASSERT_TRUE(restored.ok()) << restored.to_string();
    EXPECT_EQ(other.range->header().restored.load(), 4U);
    const RangeCopy again = other.copy();
    EXPECT_EQ(again.positions, copy.positions);
    EXPECT_EQ(again.updates, copy.updates);
    EXPECT_EQ(again.values, copy.values);
    EXPECT_EQ(again.state, copy.state);
    push_some(*one.range, 61, 90);
    // Another client, whose numbers begin anew: none of its pushes is a duplicate.
    push_some(*other.range, 61, 90);
    EXPECT_EQ(other.copy().values, one.copy().values);
    EXPECT_EQ(other.copy().state, one.copy().state);
  }
}

TEST(PsRangeCopy, RowsThatNobodyPushedAreNotThere) {
  OneRange rows(specs()[0]), dense(specs()[2]);
  EXPECT_TRUE(rows.copy().positions.empty());
  const RangeCopy copy = dense.copy();
  EXPECT_EQ(copy.updates, std::vector<std::uint32_t>{0});
  std::vector<float> values(5);
  std::memcpy(values.data(), copy.values.data(), copy.values.size());
  EXPECT_EQ(values, values_of<float>(*dense.range->reader(), {}));
  OneRange other(specs()[2]);
  ASSERT_TRUE(other.range->restore(copy.view(), 1).ok());
  EXPECT_EQ(other.range->header().current.load(), 0U) << "it takes no memory";
}

RangeCopy copy_since(const OneRange& one, std::uint64_t since) {
  auto out = copy_range(one.small.memory, one.range->header(), soon(), since);
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  return std::move(*out);
}

TEST(PsRangeCopy, ChangesAreTheRowsOfLaterPushes) {
  for (const TableSpec& spec : {specs()[0], specs()[1]}) {
    SCOPED_TRACE(spec.name);
    OneRange one(spec);
    push_some(*one.range, 1, 40);
    const RangeCopy before = one.copy();
    EXPECT_TRUE(copy_since(one, before.lsn).positions.empty());
    push_some(*one.range, 41, 44);
    const RangeCopy after = one.copy(), changes = copy_since(one, before.lsn);
    EXPECT_EQ(changes.lsn, 44U);
    // Of 41 to 44: n % 7, 7 + n % 50, 60 + n % 3.
    EXPECT_EQ(changes.positions,
              (std::vector<std::uint64_t>{0, 1, 2, 6, 48, 49, 50, 51, 60, 61, 62}));
    for (std::size_t i = 0; i < changes.positions.size(); ++i) {
      const auto at = static_cast<std::size_t>(
          std::ranges::find(after.positions, changes.positions[i]) - after.positions.begin());
      const std::size_t bytes = spec.value_bytes();
      EXPECT_EQ(changes.updates[i], after.updates[at]);
      EXPECT_EQ(std::memcmp(&changes.values[i * bytes], &after.values[at * bytes], bytes), 0);
    }
    const auto count = count_changes(one.small.memory, one.range->header(), before.lsn, soon());
    ASSERT_TRUE(count.ok()) << count.status().to_string();
    EXPECT_EQ(count->lsn, 44U);
    EXPECT_EQ(count->changed * after.positions.size(), count->all * changes.positions.size());
  }
}

// The index has only 16 bits of a row's LSN.
TEST(PsRangeCopy, ARowIsNotTakenForOneThatChanged65536PushesLater) {
  OneRange one({.name = "n", .kind = TableKind::kDirect, .rows = 9, .dtype = Dtype::kInt64});
  constexpr std::uint64_t kLast = 65'540;
  for (std::uint64_t n = 1; n <= kLast; ++n) {
    apply(*one.range, push_of(0, n, 0, {n == 1 ? 4U : 5U}, std::vector<std::int64_t>{1}, 0));
    one.writer->release_log();
  }
  EXPECT_EQ(copy_since(one, kLast - 10).positions, std::vector<std::uint64_t>{5});
  EXPECT_EQ(copy_since(one, 1).positions, std::vector<std::uint64_t>{5});
  EXPECT_EQ(copy_since(one, 0).positions, (std::vector<std::uint64_t>{4, 5}));
}

TEST(PsRangeCopy, OfADenseRangeAllHasChangedOrNothing) {
  OneRange one(specs()[2]);
  push_some(*one.range, 1, 3);
  const RangeHeader& header = one.range->header();
  const auto same = count_changes(one.small.memory, header, 3, soon());
  const auto other = count_changes(one.small.memory, header, 2, soon());
  EXPECT_EQ(same->changed, 0U);
  EXPECT_GT(other->changed, 0U);
  EXPECT_EQ(other->changed, other->all);
}

TEST(PsRangeCopy, WhatWasSavedIsKnownByItsStep) {
  const OneRange one(specs()[0]);
  const RangeHeader& header = one.range->header();
  EXPECT_EQ(saved_lsn(header, 0), std::nullopt);
  note_saved(one.small.memory, header, 9, 2);
  EXPECT_EQ(saved_lsn(header, 2), 9U);
  EXPECT_EQ(saved_lsn(header, 1), std::nullopt);
  EXPECT_EQ(saved_lsn(header, 0), std::nullopt);
}

TEST(PsRangeCopy, WhatDoesNotFitIsRefused) {
  OneRange one(specs()[0]);
  push_some(*one.range, 1, 5);
  const RangeCopy copy = one.copy();
  EXPECT_EQ(one.range->restore(copy.view(), 1).code(), base::Code::kInvalidArgument)
      << "it has pushes";
  OneRange other(specs()[0]);
  ASSERT_TRUE(other.range->restore(copy.view(), 1).ok());
  EXPECT_EQ(other.range->restore(copy.view(), 1).code(), base::Code::kInvalidArgument)
      << "it has these rows";
  OneRange wrong(specs()[1]);
  EXPECT_EQ(wrong.range->restore(copy.view(), 1).code(), base::Code::kInvalidArgument);
}

TEST(PsRangeCopy, ARangeThatDoesNotFitIntoTheMemoryIsRefused) {
  RangeCopy copy{.spec = specs()[0], .range = kAll};
  for (std::uint64_t i = 0; i < 30'000; ++i) copy.positions.push_back(i << 40);
  copy.updates.resize(copy.positions.size(), 1);
  copy.values.resize(copy.positions.size() * 12);
  copy.state.resize(copy.positions.size() * 24);
  OneRange one(specs()[0]);
  EXPECT_EQ(one.range->restore(copy.view(), 1).code(), base::Code::kResourceExhausted);
}

TEST(PsShardPause, NobodyPausesAStoreWhoseServerDiedInTheMiddle) {
  const SmallStore small;
  Child([&] {
    WriteTurn turn(small.memory);
    return 0;  // without settle()
  }).end();
  EXPECT_EQ(ShardPause::take(small.memory, soon()).code(), base::Code::kUnavailable);
  { WriteTurn(small.memory).settle(); }
  EXPECT_TRUE(ShardPause::take(small.memory, soon()).ok());
  Child([&] {
    WriteTurn turn(small.memory);
    ::raise(SIGKILL);
    return 0;
  }).end();
  EXPECT_EQ(ShardPause::take(small.memory, soon()).code(), base::Code::kUnavailable);
}

TEST(PsShardPause, AServerGoesOnWhenTheHolderDies) {
  const SmallStore small;
  Child([&] {
    const auto pause = ShardPause::take(small.memory, soon());
    ::raise(SIGKILL);
    return pause.ok() ? 0 : 1;
  }).end();
  { WriteTurn(small.memory).settle(); }
  EXPECT_TRUE(ShardPause::take(small.memory, soon()).ok());
}

TEST(PsShardPause, ItHasADeadline) {
  const SmallStore small;
  WriteTurn turn(small.memory);
  EXPECT_EQ(ShardPause::take(small.memory, in(std::chrono::milliseconds(20))).code(),
            base::Code::kDeadlineExceeded);
}

// A client adds one to all rows of a range with each push, so a copy of a prefix of the log has the
// LSN in each row.
TEST(PsShardPause, CopiesAreOfOneMomentThoughServersAreKilled) {
  const Served served(Served::small(1));
  const TableSpec spec{
      .name = "counts", .kind = TableKind::kDense, .rows = 4096, .dtype = Dtype::kInt64};
  const TableSpec rows{
      .name = "rows", .kind = TableKind::kDirect, .rows = 16, .dtype = Dtype::kInt64};
  Child server = served.server();
  const auto client = served.client(1);
  const Table dense = open(*client, spec), direct = open(*client, rows);
  std::atomic<bool> stop = false;
  std::thread pushing([&] {
    const std::vector<std::int64_t> ones(4096, 1), id{3};
    while (!stop) {
      ASSERT_TRUE(client->push(dense, bytes_of(ones)).ok());
      ASSERT_TRUE(client->push(direct, id, bytes_of(std::vector<std::int64_t>{1})).ok());
    }
    EXPECT_TRUE(client->flush().ok());
  });
  const MappedShard shard = served.map(0);
  int copies = 0;
  std::uint64_t last = 0;
  for (int round = 0; round < 12; ++round) {
    if (round % 2 == 1) {
      server.end(SIGKILL);
      // Between two servers: whole, or refused until the next one has applied the log.
      const auto between = ranges_in(shard.store);
      for (const RangeHeader* const header : *between) {
        const base::Code code = copy_range(shard.store, *header, soon()).code();
        EXPECT_TRUE(code == base::Code::kOk || code == base::Code::kUnavailable);
      }
      server = served.server();
      served.await_server(0, server.pid());
    }
    const auto headers = ranges_in(shard.store);
    for (const RangeHeader* const header : *headers) {
      const auto copy = copy_range(shard.store, *header, soon());
      ASSERT_TRUE(copy.ok()) << copy.status().to_string();
      std::vector<std::int64_t> values(copy->values.size() / 8);
      std::memcpy(values.data(), copy->values.data(), copy->values.size());
      const auto lsn = static_cast<std::int64_t>(copy->lsn);
      EXPECT_TRUE(std::ranges::all_of(values, [&](std::int64_t one) { return one == lsn; }));
      if (copy->spec.kind == TableKind::kDense) {
        EXPECT_GE(copy->lsn, last);
        last = copy->lsn;
      }
      ++copies;
    }
  }
  stop = true;
  pushing.join();
  EXPECT_GT(copies, 12);
  EXPECT_GT(last, 0U);
  EXPECT_EQ(server.end(SIGTERM), 0);
}

}  // namespace
}  // namespace regroup::collective::ps::testing::range_copy
