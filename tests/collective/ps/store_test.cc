// The parts of a store: segments, the writer's lock, the log ring, the index while it grows,
// readers beside a writer, and what a range refuses.
#include "collective/ps/store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "tests/collective/ps/small_store.h"

namespace regroup::collective::ps::testing::store {
namespace {

using Outcome = Appended::Outcome;

constexpr PositionRange kAll{0, ~0ULL};
TableSpec counts(std::uint32_t dim = 1) {
  return {.name = "counts", .kind = TableKind::kHash, .dim = dim, .dtype = Dtype::kInt64};
}

TEST(PsSegment, IsReservedSealedAndOfOneSize) {
  const SmallStore store;
  EXPECT_EQ(::ftruncate(store.segments[0].get(), 4096), -1);
  EXPECT_EQ(make_segment(1000).code(), base::Code::kInvalidArgument);
  EXPECT_EQ(make_segment(1ULL << 60).code(), base::Code::kInvalidArgument);
  StoreMemory memory = store.map(StoreMemory::Mode::kWrite);
  const auto smaller = make_segment(kBlockBytes);
  EXPECT_EQ(memory.add(smaller->get()).message(),
            "store segment 1: expected 524288 bytes, got 65536");
  const base::Fd plain(::memfd_create("plain", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(plain.get(), 512 << 10), 0);
  EXPECT_EQ(memory.add(plain.get()).message(),
            "store segment 1: it is not a sealed memfd; expected one of make_segment()");
  EXPECT_EQ(memory.segments(), 1U);
}

TEST(PsSegment, AStoreOfOtherNumbersIsRefused) {
  const SmallStore store;
  const auto other = StoreMemory::open(store.segments[0].get(), 9, StoreMemory::Mode::kRead);
  EXPECT_EQ(check_store(*other).message(),
            "store: expected at most 8 segments of 524288 bytes, got 9 of 524288");
  const auto empty = make_segment(512 << 10);
  const auto blank = StoreMemory::open(empty->get(), 8, StoreMemory::Mode::kWrite);
  EXPECT_EQ(Store::attach(*blank).code(), base::Code::kDataLoss);
  EXPECT_EQ(format_store(*blank, {.ring_bytes = 1 << 20, .most_segments = 8}).code(),
            base::Code::kInvalidArgument);
}

TEST(PsSegment, PlacesOfTablesOutliveTheServer) {
  const SmallStore store;
  const std::vector<std::uint32_t> places{0, 2, 1, 2};
  {
    const auto writer = Store::attach(store.memory);
    ASSERT_TRUE((*writer)->place_table(counts(3), places).ok());
    EXPECT_EQ((*writer)->place_table({.name = "?"}, places).code(), base::Code::kInvalidArgument);
  }
  const StoreMemory reader = store.map(StoreMemory::Mode::kRead);
  const auto tables = tables_in(reader);
  ASSERT_EQ(tables->size(), 1U);
  EXPECT_EQ(tables->at(0).spec, counts(3));
  EXPECT_EQ(tables->at(0).shard_of, places);
  EXPECT_EQ(used_bytes(reader), kBlockBytes);
  EXPECT_TRUE(ranges_in(reader)->empty());
  // It is no range, and takes no memory but its block.
  const auto successor = Store::attach(store.memory);
  EXPECT_EQ((*successor)->range(kTableId), nullptr);
  EXPECT_TRUE((*successor)->open_range(1, counts(3), kAll).ok());
}

TEST(PsSegment, AStoreOfTheDefaultNumbersFits) {
  const auto segment = make_segment(kSegmentBytes);
  ASSERT_TRUE(segment.ok()) << segment.status().to_string();
  const StoreSpec spec;
  const auto memory =
      StoreMemory::open(segment->get(), spec.most_segments, StoreMemory::Mode::kWrite);
  EXPECT_EQ(format_store(*memory, spec).to_string(), "ok");
}

TEST(PsShardLock, PassesToASuccessorWhenItsHolderIsDeadAndNotBefore) {
  const SmallStore store;
  const auto now = std::chrono::steady_clock::now();
  {
    const auto mine = ShardLock::acquire(store.memory, now + std::chrono::seconds(60));
    ASSERT_TRUE(mine.ok());
    EXPECT_EQ(mine->inherited(), ShardLock::Inherited::kNothing);
    std::thread([&] {
      EXPECT_EQ(ShardLock::acquire(store.memory, now).code(), base::Code::kDeadlineExceeded);
    }).join();
  }
  const pid_t child = ::fork();
  if (child == 0) {
    const auto its = ShardLock::acquire(store.memory, now + std::chrono::seconds(60));
    ::raise(its.ok() ? SIGKILL : SIGTERM);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  for (const auto inherited :
       {ShardLock::Inherited::kFromTheDead, ShardLock::Inherited::kNothing}) {
    const auto mine = ShardLock::acquire(store.memory, now + std::chrono::seconds(60));
    ASSERT_TRUE(mine.ok()) << mine.status().to_string();
    EXPECT_EQ(mine->inherited(), inherited);
  }
}

struct OneRange {
  explicit OneRange(const TableSpec& spec = counts(), PositionRange positions = kAll)
      : server(Store::attach(store.memory).value()),
        range(*server->open_range(1, spec, positions)) {}
  // Pushes 1 to each position.
  base::Result<Appended> push(std::uint64_t number, std::vector<std::uint64_t> positions) {
    const std::vector<std::int64_t> ones(positions.size() * range->spec().dim, 1);
    return range->append(push_of(1, number, number - 1, std::move(positions), ones).get());
  }
  void apply() {
    const base::Status status = range->apply(range->newest());
    ASSERT_TRUE(status.ok()) << status.to_string();
    server->release_log();
  }
  SmallStore store;
  std::unique_ptr<Store> server;
  Range* range;
};

TEST(PsRing, AFullRingRefusesUntilPushesAreApplied) {
  OneRange one;
  std::vector<std::uint64_t> positions(100);
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = i;
  for (std::uint64_t number = 1, full = 0; full < 5; ++number) {
    const auto appended = one.push(number, positions);
    if (appended.ok()) {
      EXPECT_EQ(appended->lsn, number);
      continue;
    }
    ++full;
    EXPECT_EQ(appended.code(), base::Code::kUnavailable);
    EXPECT_EQ(appended.status().message(), "store: the log ring of 32768 bytes is full");
    one.apply();
    EXPECT_EQ(values_of<std::int64_t>(*one.range->reader(), {5}).front(),
              static_cast<std::int64_t>(number - 1));
    --number;
  }
}

TEST(PsRing, ADamagedEntryIsRefused) {
  OneRange one;
  ASSERT_TRUE(one.push(1, {1, 2, 3}).ok());
  ASSERT_TRUE(Store::attach(one.store.memory).ok());
  const HeadLayout layout(*reinterpret_cast<const StoreHeader*>(one.store.memory.at(0)));
  *one.store.memory.at(layout.ring + 2 * kLineBytes) ^= std::byte{1};  // its first position
  EXPECT_EQ(Store::attach(one.store.memory).status().message(),
            "store: entry 0 of the log ring at line 0: CRC or size is wrong");
}

TEST(PsRange, SaysWhatBecameOfAPush) {
  OneRange one;
  one.range->adopt_epoch(3);
  const auto with = [](std::uint64_t number, std::uint64_t previous, std::uint64_t epoch) {
    OwnedPush push = push_of<std::int64_t>(1, number, previous, {9}, {1});
    push.push.epoch = epoch;
    return push;
  };
  EXPECT_EQ(one.range->append(with(4, 0, 2).get())->outcome, Outcome::kOtherEpoch);
  EXPECT_EQ(one.range->append(with(4, 0, 3).get())->outcome, Outcome::kAppended);
  EXPECT_EQ(one.range->append(with(4, 0, 3).get())->outcome, Outcome::kDuplicate);
  EXPECT_EQ(one.range->append(with(9, 7, 3).get())->outcome, Outcome::kAfterGap);
  EXPECT_EQ(values_of<std::int64_t>(*one.range->reader(), {9}).front(), 0) << "not applied yet";
  one.apply();
  EXPECT_EQ(values_of<std::int64_t>(*one.range->reader(), {9}).front(), 1);
  EXPECT_EQ(one.range->append(with(4, 0, 3).get())->outcome, Outcome::kDuplicate);
  one.range->adopt_epoch(2);
  EXPECT_EQ(one.range->epoch(), 3U);
  // Another server knows the client; once it is dropped, nobody does.
  one.server = Store::attach(one.store.memory).value();
  EXPECT_EQ(one.server->range(1)->last_of(1), 4U);
  one.server->range(1)->drop_client(1);
  EXPECT_EQ(one.server->range(1)->last_of(1), 0U);
  EXPECT_EQ((*Store::attach(one.store.memory))->range(1)->last_of(1), 0U);
}

TEST(PsRange, BadPushesChangeNothing) {
  OneRange one(counts(), {10, 20});
  const auto refused = [&](std::vector<std::uint64_t> positions, std::size_t gradients) {
    const std::vector<std::int64_t> ones(gradients, 1);
    return one.range->append(push_of(1, 1, 0, std::move(positions), ones).get()).status().message();
  };
  EXPECT_EQ(refused({12, 13}, 1),
            "push to table counts: expected 16 bytes for 2 rows of range 1, got 8");
  EXPECT_EQ(refused({12, 12}, 2),
            "push to table counts: expected ascending positions from 10 to 20 in range 1, got 12 "
            "after 12");
  EXPECT_EQ(refused({9}, 1),
            "push to table counts: expected ascending positions from 10 to 20 in range 1, got 9 "
            "after nothing");
  EXPECT_EQ(refused(std::vector<std::uint64_t>(3000, 12), 3000),
            "push to table counts: 3000 rows do not fit into half of the log ring; push less at a "
            "time");
  EXPECT_EQ(one.range->newest(), 0U);
  EXPECT_EQ(one.server->open_range(1, counts(2), {10, 20}).status().message(),
            "table counts: expected dim 1 as the store has it, got 2");
  EXPECT_EQ(one.server->open_range(1, counts(), kAll).code(), base::Code::kInvalidArgument);
}

// Until the store is full: that push is refused, and accepted when a segment has come.
TEST(PsRange, GrowsWithItsStore) {
  OneRange one(counts(8));
  std::uint64_t next = 0, number = 1, grown = 0;
  const auto push = [&] {
    std::vector<std::uint64_t> positions(50);
    for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = mix64(next + i);
    std::ranges::sort(positions);
    return one.push(number, positions);
  };
  while (next < 20'000) {
    auto appended = push();
    if (!appended.ok()) {
      ASSERT_EQ(appended.code(), base::Code::kResourceExhausted) << appended.status().to_string();
      one.store.grow();
      ++grown;
      continue;
    }
    one.apply();  // what is logged needs no more memory
    next += 50;
    ++number;
  }
  EXPECT_GE(grown, 2U);
  EXPECT_EQ(one.range->rows(), next);
  one.server = Store::attach(one.store.memory).value();
  EXPECT_EQ(one.server->range(1)->rows(), next);
  const StoreMemory memory = one.store.map(StoreMemory::Mode::kRead);
  const auto reader = RangeReader::open(memory, *ranges_in(memory)->front());
  for (std::uint64_t key = 0; key < next + 100; key += 50) {
    std::vector<std::uint64_t> positions;
    for (std::uint64_t i = 0; i < 50; ++i) positions.push_back(mix64(key + i));
    ASSERT_EQ(values_of<std::int64_t>(*reader, positions),
              std::vector<std::int64_t>(400, key < next ? 1 : 0))
        << key;
  }
}

// A process reads while the server writes the same few rows, and adds others, so that slots are
// reused and pages split under it: every row it gets is whole, and none goes back.
TEST(PsReader, FindsWholeRowsBesideAWriter) {
  OneRange one(counts(32));
  auto* const stop = static_cast<Word*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const pid_t child = ::fork();
  if (child == 0) {
    const StoreMemory memory = one.store.map(StoreMemory::Mode::kRead);
    const auto reader = RangeReader::open(memory, *ranges_in(memory)->front());
    std::vector<std::uint64_t> lsns(4), last(4);
    std::uint64_t reads = 0;
    while (stop->load() == 0 || reads == 0) {
      std::vector<std::int64_t> rows(4 * 32);
      const std::uint64_t keys[] = {1, 2, 3, 4};
      const base::Status status =
          reader->gather(keys, std::as_writable_bytes(std::span(rows)), lsns);
      if (status.code() == base::Code::kUnavailable) continue;
      if (!status.ok()) ::_exit(1);
      ++reads;
      for (std::size_t i = 0; i < 4; ++i) {
        const auto row = std::span(rows).subspan(i * 32, 32);
        if (std::ranges::any_of(row, [&](std::int64_t value) { return value != row[0]; }))
          ::_exit(2);
        // Each push changes each of the four rows, so a row's value is its LSN.
        if (static_cast<std::uint64_t>(row[0]) != lsns[i] || lsns[i] < last[i]) ::_exit(3);
        last[i] = lsns[i];
      }
      stop[1].store(reads);
    }
    ::_exit(0);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::uint64_t number = 1;
  for (; number <= 8000 || stop[1].load() < 20; ++number) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::vector<std::uint64_t> positions{1, 2, 3, 4};
    if (number <= 300) positions.insert(positions.end(), {10 * number, 10 * number + 1});
    ASSERT_TRUE(one.push(number, positions).ok());
    one.apply();
  }
  stop->store(1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::munmap(stop, 4096);
}

TEST(PsReader, UnknownKeysGiveTheirInitialRowsAndMakeNone) {
  TableSpec spec = counts(4);
  spec.dtype = Dtype::kFloat32;
  spec.init = {InitialKind::kNormal, 0, 1};
  OneRange one(spec);
  const auto reader = one.range->reader();
  std::vector<float> expected(4);
  InitialRows(7, spec).fill(99, 0, std::as_writable_bytes(std::span(expected)));
  EXPECT_EQ(values_of<float>(*reader, {99}), expected);
  EXPECT_EQ(one.range->rows(), 0U);
  std::vector<std::byte> few(3);
  TableSpec dense = spec;
  dense.name = "dense";
  dense.kind = TableKind::kDense;
  dense.rows = 100;
  dense.dim = 1;
  const auto tensor = (*one.server->open_range(2, dense, {0, 99}))->reader();
  const std::uint64_t key[] = {99};
  EXPECT_EQ(tensor->gather(key, std::as_writable_bytes(std::span(expected).first(1))).message(),
            "pull of table dense: it is dense and has no rows; copy its slices");
  EXPECT_EQ(reader->gather(key, few).message(),
            "pull of table counts: expected 16 bytes for 1 keys, got 3");
}

}  // namespace
}  // namespace regroup::collective::ps::testing::store
