// Clients and servers of one host, as processes: pushes, pulls, and what each of them does when the
// other one is wrong, slow or gone.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "base/descriptor_message.h"
#include "tests/collective/ps/served.h"

namespace regroup::collective::ps::testing::clients {
namespace {

using base::Code;
using std::chrono_literals::operator""ms;

TableSpec counts() {
  return {.name = "counts", .kind = TableKind::kHash, .dim = 4, .dtype = Dtype::kInt64};
}
std::vector<std::int64_t> ones(std::size_t count) { return std::vector<std::int64_t>(count, 1); }

void push_ones(Client& client, Table table, const std::vector<std::int64_t>& ids) {
  const auto ticket = client.push(table, ids, bytes_of(ones(ids.size() * 4)));
  ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
}

TEST(PsClient, PushesAndPullsRows) {
  const Served served;
  const Child server = served.server();
  const auto client = served.client(3);
  const Table table = open(*client, {.name = "users",
                                     .kind = TableKind::kHash,
                                     .dim = 2,
                                     .init = {InitialKind::kConstant, 5},
                                     .optimizer = {.kind = OptimizerKind::kSgd}});
  const std::vector<std::int64_t> ids{-7, 1LL << 60, 3};
  const std::vector<float> gradients{1, 2, 3, 4, 5, 6};
  const auto ticket = client->push(table, ids, bytes_of(gradients), {.lr = 0.5});
  ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
  const base::Status status = client->wait(*ticket, kLong);
  ASSERT_TRUE(status.ok()) << status.to_string();
  // Ids may repeat in a pull; 4 was never pushed.
  EXPECT_EQ((pull<float>(*client, table, {3, 4, -7, 3}, 2)),
            (std::vector<float>{2.5, 2, 5, 5, 4.5, 4, 2.5, 2}));
}

TEST(PsClient, PushesAndPullsTensorsOfSeveralSlices) {
  ServerMemorySpec spec = Served::small();
  spec.ring_bytes = 16 << 20;
  spec.segment_bytes = 32 << 20;
  spec.lane_bytes = 8 << 20;
  const Served served(spec);
  const Child server = served.server();
  const auto client = served.client(0);
  constexpr std::size_t kElements = (9 << 20) / sizeof(float) + 3;
  const Table table = open(
      *client, {.name = "dense", .rows = kElements, .optimizer = {.kind = OptimizerKind::kSgd}});
  std::vector<float> gradients(kElements);
  std::iota(gradients.begin(), gradients.end(), 0.0F);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client->push(table, bytes_of(gradients), {.lr = 1}).ok());
  const base::Status status = client->flush();
  ASSERT_TRUE(status.ok()) << status.to_string();
  const auto values = pull<float>(*client, table);
  for (std::size_t i = 0; i < kElements; ++i) ASSERT_EQ(values[i], -3 * gradients[i]) << i;
}

TEST(PsClient, AnotherClientFindsTheTable) {
  const Served served;
  const Child server = served.server();
  const auto first = served.client(1), second = served.client(2);
  push_ones(*first, open(*first, counts()), {1, 2});
  ASSERT_TRUE(first->flush().ok());
  const Table table = open(*second, counts());
  EXPECT_EQ(pull<std::int64_t>(*second, table, {2}, 4), ones(4));
  TableSpec other = counts();
  other.dim = 8;
  const auto refused = second->open(other);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_EQ(refused.status().message(), "table counts: expected dim 4 as the server has it, got 8");
}

// flush() of one thread leaves the refusal to the thread that opens.
TEST(PsClient, AFlushDoesNotTakeTheErrorOfAnOpen) {
  const Served served;
  const Child server = served.server();
  const auto first = served.client(1), second = served.client(2);
  static_cast<void>(open(*first, counts()));
  TableSpec other = counts();
  other.dim = 8;
  std::atomic<bool> ending = false;
  std::thread flushing([&] {
    for (; !ending; std::this_thread::yield()) EXPECT_TRUE(second->flush().ok());
  });
  for (int i = 0; i < 50; ++i) EXPECT_EQ(second->open(other).code(), Code::kInvalidArgument) << i;
  ending = true;
  flushing.join();
}

TEST(PsClient, AChildAfterForkIsRefusedAndEnds) {
  const Served served;
  const Child server = served.server();
  auto client = served.client(1);
  const Table table = open(*client, counts());
  Child child([&] {
    const std::vector<std::int64_t> id{1};
    const auto pushed = client->push(table, id, bytes_of(ones(4)));
    if (pushed.code() != Code::kInvalidArgument || client->open(counts()).ok()) return 1;
    if (pushed.status().message().find("child of it after fork()") == std::string::npos) return 2;
    if (client->flush().ok() || client->wait(Ticket{1}, kLong).ok()) return 3;
    client.reset();
    return 0;
  });
  int status = -1;
  for (const base::TimePoint end = in(kLong); !child.has_ended(status);) {
    ASSERT_LT(in(0ms), end) << "the child waits for ever";
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(status, 0);
  push_ones(*client, table, {1});  // the parent's is as before
  ASSERT_TRUE(client->flush().ok());
  EXPECT_EQ(pull<std::int64_t>(*client, table, {1}, 4), ones(4));
}

TEST(PsClient, WrongPushesAreRefusedAndChangeNothing) {
  const Served served;
  const Child server = served.server();
  const auto client = served.client(1);
  const Table rows = open(*client, counts());
  const Table dense = open(*client, {.name = "dense", .rows = 3});
  const auto refused = [](const auto& result, std::string_view part) {
    EXPECT_EQ(result.code(), Code::kInvalidArgument);
    EXPECT_NE(result.status().message().find(part), std::string::npos)
        << result.status().to_string();
  };
  const std::vector<std::int64_t> twice{5, 6, 5}, two{5, 6};
  refused(client->push(rows, twice, bytes_of(ones(12))), "key 5 occurs twice");
  refused(client->push(rows, two, bytes_of(ones(4))), "expected 2 rows for 2 keys, got 1");
  refused(client->push(rows, two, bytes_of(ones(3))), "expected rows of 32 bytes, got 24 bytes");
  refused(client->push(rows, bytes_of(ones(4))), "it has rows: expected ids");
  refused(client->push(dense, two, bytes_of(ones(4))), "it is dense");
  refused(client->push(dense, bytes_of(ones(4))), "expected 12 bytes for 3 elements, got 32");
  refused(client->push(Table{9}, two, bytes_of(ones(8))), "this client has opened 2 tables");
  refused(client->open({.name = "a b", .rows = 1}), "expected 1 to 200 of the characters");
  EXPECT_EQ(client->wait(Ticket{77}, kLong).code(), Code::kInvalidArgument);
  ASSERT_TRUE(client->flush().ok());
  EXPECT_EQ((pull<std::int64_t>(*client, rows, {5, 6}, 4)), std::vector<std::int64_t>(8));
}

TEST(PsClient, AStoreThatIsFullRefusesThePushAndGoesOn) {
  ServerMemorySpec spec = Served::small();
  spec.shards = 1;
  spec.lane_bytes = 4 << 20;
  spec.ring_bytes = 6 << 20;
  spec.segment_bytes = 8 << 20;
  spec.segments = 1;
  const Served served(spec);
  const Child server = served.server();
  const auto client = served.client(1);
  const Table large = open(*client, {.name = "large", .rows = 500'000, .dtype = Dtype::kInt32});
  const Table small = open(*client, {.name = "small", .rows = 4, .dtype = Dtype::kInt64});
  const auto ticket = client->push(large, bytes_of(std::vector<std::int32_t>(500'000)));
  ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
  const base::Status status = client->wait(*ticket, kLong);
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status.to_string();
  EXPECT_NE(status.message().find("bytes requested, none free"), std::string::npos)
      << status.to_string();
  ASSERT_TRUE(client->push(small, bytes_of(ones(4))).ok());
  // wait() has returned the error; flush() does not again.
  const base::Status flushed = client->flush();
  EXPECT_TRUE(flushed.ok()) << flushed.to_string();
  EXPECT_EQ(pull<std::int64_t>(*client, small), ones(4));
}

TEST(PsClient, AFullLaneWaitsForTheServer) {
  const Served served;
  const auto client = served.client(1, 50ms);
  Child server = served.server();
  const auto table = [&] {
    auto opened = client->open(counts());  // 50 ms may be too short for a server to start
    for (const base::TimePoint end = in(kLong); !opened.ok() && in(0ms) < end;)
      opened = client->open(counts());
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return opened.ok() ? *opened : Table{};
  }();
  server.stop();
  std::vector<std::int64_t> ids(100);
  std::iota(ids.begin(), ids.end(), 0);
  base::Status full;
  int begun = 0;
  while (full.ok()) {
    ASSERT_LT(begun, 1000);
    const auto ticket = client->push(table, std::span(ids).first(1), bytes_of(ones(4)));
    full = ticket.status();
    if (full.ok()) ++begun;
  }
  EXPECT_EQ(full.code(), Code::kDeadlineExceeded);
  EXPECT_NE(full.message().find("push to table counts: the server of shard"), std::string::npos);
  EXPECT_NE(full.message().find(std::to_string(server.pid())), std::string::npos);
  EXPECT_EQ(client->flush().code(), Code::kDeadlineExceeded);
  server.signal(SIGCONT);
  base::Status flushed = client->flush();
  for (const base::TimePoint end = in(kLong); !flushed.ok() && in(0ms) < end;)
    flushed = client->flush();
  ASSERT_TRUE(flushed.ok()) << flushed.to_string();
  EXPECT_EQ(pull<std::int64_t>(*client, table, {0}, 4), std::vector<std::int64_t>(4, begun));
}

TEST(PsClient, AServerThatNeverAnswersIsNamed) {
  const Served served;
  const auto client = served.client(1, 20ms);
  const auto opened = client->open(counts());
  EXPECT_EQ(opened.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(opened.status().message().find("table counts: the server of shard "), 0U)
      << opened.status().to_string();
  EXPECT_NE(opened.status().message().find("none has started yet"), std::string::npos);
}

TEST(PsClient, TwoLivingClientsOfOneNumberAreRefused) {
  const Served served;
  const Child server = served.server();
  auto first = served.client(5);
  const auto second = served.attach(5);
  EXPECT_EQ(second.code(), Code::kInvalidArgument);
  EXPECT_NE(second.status().message().find("process " + std::to_string(::getpid()) +
                                           " is attached under this number"),
            std::string::npos)
      << second.status().to_string();
  // Once it has ended, and the server has freed its lane, the number is free.
  first.reset();
  EXPECT_NE(served.client(5), nullptr);
}

TEST(PsClient, LanesAreLimitedAndBecomeFree) {
  ServerMemorySpec spec = Served::small();
  spec.lanes = 2;
  const Served served(spec);
  auto first = served.client(1);
  const auto second = served.client(2);
  const auto third = served.attach(3, 10ms);
  EXPECT_EQ(third.code(), Code::kResourceExhausted);
  EXPECT_EQ(third.status().message(),
            "client 3: all 2 lanes of shard 0 are taken; expected one to become free");
  const Child server = served.server();
  first.reset();
  EXPECT_NE(served.client(3), nullptr);
}

// While a process takes or frees a lane, nobody can say that all are taken.
TEST(PsClient, ATurnToTakeALaneThatDoesNotComeIsADeadline) {
  const Served served;
  const MappedShard mapped = served.map(0);
  ASSERT_TRUE(try_lock_robust(mapped.lanes.header().attaching));
  const auto refused = served.attach(3, 10ms);
  ::pthread_mutex_unlock(&mapped.lanes.header().attaching);
  EXPECT_EQ(refused.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(refused.status().message(),
            "client 3: other processes take and free lanes of shard 0; expected a turn");
}

TEST(PsClient, AWaitMayBeForEver) {
  const Served served;
  const Child server = served.server();
  const auto client = served.client(1, std::chrono::nanoseconds::max());
  const Table table = open(*client, counts());
  const auto ticket = client->push(table, std::vector<std::int64_t>{1}, bytes_of(ones(4)));
  ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
  EXPECT_EQ(client->wait(*ticket, std::chrono::nanoseconds::max()).to_string(), "ok");
}

// A client's process that dies while it writes a message: nothing of it counts, and its lane goes
// to the next one.
TEST(PsClient, AMessageOfADeadClientThatIsNotWholeDoesNotCount) {
  ServerMemorySpec spec = Served::small();
  spec.lanes = 1;
  const Served served(spec);
  const Child server = served.server();
  Child dying([&] {
    const auto client = served.attach(1);
    if (!client.ok()) return 1;
    const auto table = (*client)->open(counts());
    const std::vector<std::int64_t> id{1};
    if (!table.ok() || !(*client)->push(*table, id, bytes_of(ones(4))).ok()) return 2;
    if (!(*client)->flush().ok()) return 3;
    // The next message is there but for the word that makes it so.
    for (std::size_t shard = 0; shard < 2; ++shard) {
      const MappedShard mapped = served.map(shard);
      const std::uint64_t written = mapped.lanes.lane(0).written.load();
      std::byte* const message = mapped.lanes.at(0, written);
      const std::vector<PushPart> parts{{1, 0, 1, 32}};
      MessageHeader header{
          .bytes = bytes_of_push(parts), .kind = MessageKind::kPush, .parts = 1, .number = 99};
      std::memcpy(message, &header, sizeof header);
      lay_out_push(message, parts).parts[0].positions[0] = mix64(1);
    }
    ::raise(SIGKILL);
    return 0;
  });
  const int status = dying.end();
  ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
  const auto client = served.client(2);
  ASSERT_NE(client, nullptr);
  const Table table = open(*client, counts());
  EXPECT_EQ(pull<std::int64_t>(*client, table, {1}, 4), ones(4));
  push_ones(*client, table, {1});
  ASSERT_TRUE(client->flush().ok());
  EXPECT_EQ(pull<std::int64_t>(*client, table, {1}, 4), std::vector<std::int64_t>(4, 2));
}

TEST(PsClient, APushBeforeTheEndOfItsProcessCounts) {
  const Served served;
  Child client([&] {
    const auto client = served.attach(1);
    if (!client.ok()) return 1;
    const auto table = (*client)->open(counts());
    const std::vector<std::int64_t> id{1};
    return table.ok() && (*client)->push(*table, id, bytes_of(ones(4))).ok() ? 0 : 2;
  });
  const Child server = served.server();
  ASSERT_EQ(client.end(), 0);
  const auto next = served.client(1);  // waits until the first one's lane is read and freed
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(pull<std::int64_t>(*next, open(*next, counts()), {1}, 4), ones(4));
}

// Writes a header into lane 0 of shard 0, whose client is `client`.
void write_raw(const Served& served, const MessageHeader& header, std::uint64_t bytes) {
  const MappedShard mapped = served.map(0);
  Lane& lane = mapped.lanes.lane(0);
  const std::uint64_t written = lane.written.load();
  std::memcpy(mapped.lanes.at(0, written), &header, sizeof header);
  lane.written.store(written + bytes);
  shmem::ring(mapped.lanes.header().server);
}

TEST(PsClient, ADamagedMessageStopsItsLaneOnly) {
  const Served served;
  const Child server = served.server();
  auto wrong = served.client(1);
  const auto good = served.client(2);
  const Table table = open(*wrong, counts());
  write_raw(served, {.bytes = 1 << 20, .kind = MessageKind::kPush, .parts = 1}, 1024);
  const MappedShard mapped = served.map(0);
  for (const base::TimePoint end = in(kLong); mapped.lanes.lane(0).damaged.load() == 0;) {
    ASSERT_LT(in(0ms), end) << "the server does not find the message";
    std::this_thread::yield();
  }
  base::Status status;
  std::int64_t id = 0;
  for (const base::TimePoint end = in(kLong); status.ok() && in(0ms) < end; ++id) {
    const auto ticket = wrong->push(table, std::vector{id}, bytes_of(ones(4)));
    status = ticket.ok() ? wrong->wait(*ticket, kLong) : ticket.status();
  }
  EXPECT_EQ(status.code(), Code::kDataLoss) << status.to_string();
  EXPECT_NE(status.message().find("reads this client's lane no more: lane: a message has bytes: "
                                  "1048576"),
            std::string::npos)
      << status.to_string();
  push_ones(*good, open(*good, counts()), {1000});
  EXPECT_TRUE(good->flush().ok());
  wrong.reset();
  EXPECT_NE(served.client(1), nullptr);  // the lane is in order again
}

// Pushes row 7 of `table` through a lane that the server refuses, and returns the error: of push()
// if the server was first, else of flush().
base::Status push_refused(Client& client, Table table) {
  const auto ticket = client.push(table, std::vector<std::int64_t>{7}, bytes_of(ones(4)));
  return ticket.ok() ? client.flush() : ticket.status();
}

// A push counts under the number of the client that has taken the lane, whatever is written there.
TEST(PsClient, ALaneThatNamesAnotherClientIsRefused) {
  ServerMemorySpec spec = Served::small();
  spec.shards = 1;
  const Served served(spec);
  const Child server = served.server();
  auto wrong = served.client(1);
  const auto good = served.client(2);
  const Table table = open(*wrong, counts());
  const MappedShard mapped = served.map(0);
  for (const std::uint64_t named : {std::uint64_t{3}, std::uint64_t{0}}) {  // client 2, none
    mapped.lanes.lane(0).client.store(named);
    const base::Status status = push_refused(*wrong, table);
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_NE(status.message().find(fmt::format(
                  "lane 0: client 1 has taken it, and it names {}; a process has written it",
                  named == 0 ? "no client" : "client 2")),
              std::string::npos)
        << status.to_string();
    wrong.reset();
    for (const base::TimePoint end = in(kLong); mapped.lanes.lane(0).damaged.load() != 0;) {
      ASSERT_LT(in(0ms), end) << "the server does not free the lane";
      std::this_thread::yield();
    }
    wrong = served.client(1);
    ASSERT_NE(wrong, nullptr);
    static_cast<void>(open(*wrong, counts()));
  }
  EXPECT_EQ(pull<std::int64_t>(*good, open(*good, counts()), {7}, 4), std::vector<std::int64_t>(4));
  push_ones(*good, Table{0}, {7});
  ASSERT_TRUE(good->flush().ok());
}

// A successor has not seen who took which lane: of two lanes that name one client, the first
// counts.
TEST(PsClient, TwoLanesOfOneClientAreRefusedByASuccessor) {
  ServerMemorySpec spec = Served::small();
  spec.shards = 1;
  const Served served(spec);
  Child first = served.server();
  const auto good = served.client(1), wrong = served.client(2);
  const Table table = open(*wrong, counts());
  push_ones(*good, open(*good, counts()), {7});
  ASSERT_TRUE(good->flush().ok());
  static_cast<void>(first.end(SIGKILL));
  served.map(0).lanes.lane(1).client.store(2);
  const Child second = served.server();
  const base::Status status = push_refused(*wrong, table);
  EXPECT_NE(status.message().find("lane 1: it names client 1, which has another lane"),
            std::string::npos)
      << status.to_string();
  push_ones(*good, Table{0}, {7});
  ASSERT_TRUE(good->flush().ok());
  EXPECT_EQ(pull<std::int64_t>(*good, Table{0}, {7}, 4), std::vector<std::int64_t>(4, 2));
}

TEST(PsClient, ATableThatHasNoRoomLeavesNoRange) {
  ServerMemorySpec spec = Served::small();
  spec.shards = 1;
  spec.segments = 1;
  const Served served(spec);
  const Child server = served.server();
  const auto client = served.client(1);
  static_cast<void>(open(*client, counts()));
  TableSpec second = counts();
  second.name = "second";
  const auto refused = client->open(second);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("table second: 16 ranges need 1048576 bytes, and "),
            std::string::npos)
      << refused.status().to_string();
  const MappedShard mapped = served.map(0);
  EXPECT_EQ(ranges_in(mapped.store)->size(), 16U);
  second = {.name = "second", .rows = 3};  // smaller, and another kind
  static_cast<void>(open(*client, second));
}

// Shard 1 is full, shard 0 is not: the table gets no place, so its name stays free.
TEST(PsClient, ATableThatHasNoRoomInOneOfTwoShardsHasNoPlace) {
  ServerMemorySpec spec = Served::small();
  spec.segments = 1;
  const Served served(spec);
  const Child server = served.server();
  const auto client = served.client(1);
  const Table table = open(*client, counts());
  const MappedShard first = served.map(0), full = served.map(1);
  const std::vector<PositionRange> cuts = ranges_of(counts(), 2);
  const std::vector<std::uint32_t> shard_of = tables_in(first.store)->at(0).shard_of;
  const auto is_in_full = [&](std::int64_t id) {
    const std::uint64_t position = mix64(static_cast<std::uint64_t>(id));
    const auto after =
        std::ranges::upper_bound(cuts, position, {}, [](const auto& cut) { return cut.first; });
    return shard_of.at(static_cast<std::size_t>(after - cuts.begin()) - 1) == 1;
  };
  base::Status status;
  std::int64_t id = 0;
  while (status.ok()) {
    ASSERT_LT(id, 1'000'000);
    std::vector<std::int64_t> ids;
    for (; ids.size() < 100; ++id) {
      if (is_in_full(id)) ids.push_back(id);
    }
    const auto ticket = client->push(table, ids, bytes_of(ones(ids.size() * 4)));
    status = ticket.ok() ? client->wait(*ticket, kLong) : ticket.status();
  }
  ASSERT_EQ(status.code(), Code::kResourceExhausted) << status.to_string();
  const std::size_t before = ranges_in(first.store)->size();
  TableSpec second = counts();
  second.name = "second";
  const auto refused = client->open(second);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("bytes in shard 1, and "), std::string::npos)
      << refused.status().to_string();
  EXPECT_EQ(tables_in(first.store)->size(), 1U);
  EXPECT_EQ(ranges_in(first.store)->size(), before);
  static_cast<void>(open(*client, {.name = "second", .rows = 3}));  // smaller, and another kind
}

TEST(PsClient, RangesThatAreNotThereAreRefused) {
  ServerMemorySpec spec = Served::small();
  spec.shards = 1;
  const Served served(spec);
  const Child server = served.server();
  const auto client = served.client(1);
  static_cast<void>(open(*client, counts()));
  const std::vector<PushPart> parts{{4711, 0, 0, 0}};
  const MappedShard mapped = served.map(0);
  const std::uint64_t place = mapped.lanes.lane(0).written.load();
  static_cast<void>(lay_out_push(mapped.lanes.at(0, place), parts));
  write_raw(served, {.bytes = bytes_of_push(parts), .kind = MessageKind::kPush, .parts = 1},
            bytes_of_push(parts));
  const base::TimePoint end = in(kLong);
  while (mapped.lanes.lane(0).read.load() == place && in(0ms) < end) std::this_thread::yield();
  MessageHeader header;
  std::memcpy(&header, mapped.lanes.at(0, place), sizeof header);
  EXPECT_EQ(static_cast<Code>(header.answer), Code::kInvalidArgument);
  EXPECT_STREQ(reinterpret_cast<const char*>(mapped.lanes.at(0, place)) + sizeof header,
               "push: shard 0 has no range 4711");
}

// Heads of random bits: checked by bounds, never believed.
TEST(PsLane, RandomHeadsStayInTheirMessage) {
  const Served served;
  const MappedShard mapped = served.map(0);
  const std::uint64_t size = mapped.lanes.spec().lane_bytes;
  std::mt19937_64 random(4);
  std::size_t accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::byte* const message = mapped.lanes.at(0, 0);
    MessageHeader header{};
    header.bytes = random() >> (random() % 64);
    header.kind = static_cast<MessageKind>(random() % 5);
    header.parts = static_cast<std::uint32_t>(random() >> (random() % 64));
    if (i % 2 == 0) {  // nearly right
      header.bytes = header.bytes % (size / 64) * 64;
      header.parts = static_cast<std::uint32_t>(random() % 4);
    }
    std::memcpy(message, &header, sizeof header);
    std::array<std::uint64_t, 12> words{};
    for (std::uint64_t& word : words) word = random() >> (i % 4 == 0 ? 50 : random() % 64);
    std::memcpy(message + kContentAt, words.data(), sizeof words);
    const auto checked = mapped.lanes.check_message(0, 0, size);
    if (!checked.ok() || checked->kind != MessageKind::kPush) continue;
    const auto view = read_push(message, *checked);
    if (!view.ok()) continue;
    ++accepted;
    for (const PushView::Part& part : view->parts) {
      const auto* const keys = reinterpret_cast<const std::byte*>(part.positions.data());
      ASSERT_GE(keys, message + kContentAt);
      ASSERT_LE(keys + part.positions.size_bytes(), message + checked->bytes);
      ASSERT_LE(part.gradients.data() + part.gradients.size(), message + checked->bytes);
    }
  }
  EXPECT_GT(accepted, 20U);
}

TEST(PsHandover, MemoryOfMoreOpenFilesThanAProcessHasIsRefused) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const auto segments = static_cast<std::uint32_t>(std::min<rlim_t>(limit.rlim_cur, 1U << 20));
  ServerMemorySpec spec = Served::small();
  spec.shards = 2;
  spec.segments = segments;
  const base::Status refused = make_server_memory(spec).status();
  if (limit.rlim_cur > (1U << 21)) GTEST_SKIP() << "no limit";
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            fmt::format("memory of a parameter server: 2 shards of {} segments of 2097152 bytes "
                        "need {} open files, and this process may have {} (ulimit -n); make "
                        "segments larger",
                        segments, 2 * (segments + 1), limit.rlim_cur));
}

TEST(PsHandover, MemoryIsCutIntoFewSegments) {
  for (const std::uint64_t gib : {1, 3, 80, 128}) {
    for (const std::uint32_t shards : {1U, 2U, 7U, 64U}) {
      const ServerMemorySpec spec = cut_into_segments(gib << 30, shards);
      EXPECT_LE(spec.segments, 32U);
      EXPECT_LE(shards * (spec.segments + 1), base::kMostDescriptors);
      EXPECT_GE(spec.segments * spec.segment_bytes, std::min(gib << 30, kMaxStoreBytes));
      EXPECT_LE(spec.segment_bytes, kMaxStoreBytes / spec.segments);
    }
  }
  EXPECT_EQ(cut_into_segments(1, 1).segment_bytes, kSegmentBytes);
}

TEST(PsHandover, TextIsReadBack) {
  const ServerMemory memory{{{5, {6, 7}}, {8, {9}}}};
  EXPECT_EQ(to_text(memory), "5:6,7;8:9");
  EXPECT_EQ(*parse_server_memory("5:6,7;8:9"), memory);
  for (const char* const wrong :
       {"", "5", "5:", "5:6,", "5:6;", ";", "5:-6", "a:b", "5:6 ", "5:6:7", "99999999999:1"}) {
    EXPECT_EQ(parse_server_memory(wrong).code(), Code::kInvalidArgument) << wrong;
  }
}

}  // namespace
}  // namespace regroup::collective::ps::testing::clients
