// Clients of several stores: one on this host and others reached by gateways, as on several hosts.
// Servers and clients are killed, and what was acknowledged is counted. Servers are processes; all
// gateways are in this one.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "collective/ps/backend.h"
#include "collective/ps/partitioned_client.h"
#include "tests/collective/ps/reached.h"

namespace regroup::collective::ps::testing::partitioned {
namespace {

using base::Code;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr std::chrono::seconds kShort{5};  // for a wait that must fail; others need less
constexpr Consistency bounded(std::int64_t staleness) { return {Mode::kSsp, staleness}; }

class PsPartitioned : public ::testing::Test {
 protected:
  static constexpr std::size_t kStores = 3;
  // Store i has i + 1 shards.
  PsPartitioned() {
    for (std::uint32_t i = 0; i < kStores; ++i) add_store(Served::small(i + 1));
  }
  explicit PsPartitioned(const ServerMemorySpec& spec) {
    for (std::size_t i = 0; i < kStores; ++i) add_store(spec);
  }
  void add_store(const ServerMemorySpec& spec) {
    stores_.push_back(std::make_unique<Reached>(spec));
    stores_.back()->address.host = "node" + std::to_string(stores_.size() - 1);
  }
  void start_servers() {
    for (const auto& store : stores_) servers_.push_back(store->served.server());
  }
  // After all processes are forked.
  void open_gateways() {
    for (const auto& store : stores_) store->open_gateway();
  }
  void start() {
    start_servers();
    open_gateways();
  }
  // Store 0 is on the client's host if `number` is not 0.
  [[nodiscard]] std::vector<ClientOptions> list(std::chrono::nanoseconds deadline,
                                                const Consistency& consistency = {},
                                                std::uint64_t number = 0) const {
    std::vector<ClientOptions> out;
    for (const auto& store : stores_) {
      out.push_back({.memory = to_text(store->address),
                     .client = 0,
                     .deadline = deadline,
                     .consistency = consistency,
                     .name = fmt::format("worker {}", number)});
    }
    if (number == 0) return out;
    out[0].memory = to_text(stores_[0]->served.memory.get());
    out[0].client = number;
    return out;
  }
  [[nodiscard]] std::unique_ptr<Client> client(std::chrono::nanoseconds deadline = kLong,
                                               const Consistency& consistency = {},
                                               std::uint64_t number = 0) const {
    auto made = Client::attach(list(deadline, consistency, number));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? std::move(*made) : nullptr;
  }
  // The same, to be called with other deadlines than that for attaching.
  [[nodiscard]] std::unique_ptr<Client::Partitioned> with_deadlines() const {
    auto made = Client::Partitioned::attach(list(kLong, {}, 7), in(kLong));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? std::move(*made) : nullptr;
  }
  // The ranges of a table in the store of this number.
  [[nodiscard]] std::vector<PositionRange> ranges_at(std::size_t store,
                                                     const std::string& table) const {
    std::vector<PositionRange> out;
    const Served& served = stores_[store]->served;
    for (std::size_t shard = 0; shard < served.memory.get().shards.size(); ++shard) {
      const MappedShard mapped = served.map(shard);
      const auto headers = ranges_in(mapped.store);
      EXPECT_TRUE(headers.ok());
      for (const RangeHeader* const header : *headers) {
        if (table == header->name.data()) out.push_back(header->positions);
      }
    }
    return out;
  }

  // Fills store 0, so that it refuses pushes of the ids of kHash that this returns.
  [[nodiscard]] std::vector<std::int64_t> fill_store_0(Client::Backend& client, Table table) const;
  // Waits until the servers of store 0 have answered all that is pushed there.
  void await_answers_of_store_0() const {
    const Lanes lanes = stores_[0]->served.map(0).lanes;
    for (std::uint32_t i = 0; i < lanes.spec().lanes; ++i) {
      const Lane& lane = lanes.lane(i);
      for (const base::TimePoint end = in(kLong); lane.read.load() != lane.written.load();) {
        ASSERT_LT(in(0ms), end) << "lane " << i << " is not read";
        ::usleep(200);
      }
    }
  }

  std::vector<std::unique_ptr<Reached>> stores_;
  std::vector<Child> servers_;
};

TableSpec table_of(TableKind kind, std::uint64_t rows, const std::string& name) {
  return {.name = name,
          .kind = kind,
          .rows = rows,
          .dim = kind == TableKind::kDense ? 1U : 4U,
          .dtype = Dtype::kInt64};
}
const TableSpec kHash = table_of(TableKind::kHash, 0, "hash");
const TableSpec kDirect = table_of(TableKind::kDirect, 50, "direct");
const TableSpec kTwoRows = table_of(TableKind::kDirect, 2, "two");  // fewer ranges than stores
const TableSpec kSmallDense = table_of(TableKind::kDense, 100, "dense");

// The store that has this id of kHash, if store i has i + 1 shards.
std::size_t store_of(std::int64_t id) {
  const std::vector<PositionRange> cut = ranges_of(kHash, 6);
  const auto range = std::ranges::find_if(
      cut, [&](const PositionRange& r) { return r.has(position_of(TableKind::kHash, id)); });
  return store_of_range("hash", static_cast<std::size_t>(range - cut.begin()), 3);
}
// The first id from `from` on that this store has.
std::int64_t id_at(std::size_t store, std::int64_t from = 0) {
  while (store_of(from) != store) ++from;
  return from;
}
// Pushes 1 to each element of these ids of kHash.
base::Result<Ticket> push_ones(Client::Backend& client, Table table,
                               const std::vector<std::int64_t>& ids) {
  return client.push(table, ids, bytes_of(ones_of(4 * ids.size())), {});
}

// `count` ids from `next` on that store 0 has.
std::vector<std::int64_t> ids_at_0(std::size_t count, std::int64_t& next) {
  std::vector<std::int64_t> ids;
  for (; ids.size() < count; ++next) ids.push_back(next = id_at(0, next));
  return ids;
}
std::vector<std::int64_t> PsPartitioned::fill_store_0(Client::Backend& client, Table table) const {
  std::int64_t next = 0;
  for (const std::size_t rows : {500U, 1U}) {
    for (base::Status status; status.code() != Code::kResourceExhausted;) {
      EXPECT_TRUE(status.ok()) << status.to_string();
      if (!status.ok()) return {};
      const auto ticket = push_ones(client, table, ids_at_0(rows, next));
      status = ticket.ok() ? client.wait(*ticket, in(kLong)) : ticket.status();
    }
  }
  // A single row may find room, in a page that is not full.
  return ids_at_0(200, next);
}

// What a client pushes to all tables, `times` times; every element gets 1 each time.
base::Status push_all(Client& client, int times, int wait_every) {
  std::vector<Table> tables;
  for (const TableSpec& spec : {kHash, kDirect, kTwoRows, kSmallDense}) {
    REGROUP_ASSIGN_OR_RETURN(const Table table, client.open(spec));
    tables.push_back(table);
  }
  for (int i = 0; i < times; ++i) {
    REGROUP_ASSIGN_OR_RETURN(const Ticket first,
                             client.push(tables[0], up_to(50), bytes_of(ones_of(200))));
    REGROUP_RETURN_IF_ERROR(client.push(tables[1], up_to(50), bytes_of(ones_of(200))).status());
    REGROUP_RETURN_IF_ERROR(client.push(tables[2], up_to(2), bytes_of(ones_of(8))).status());
    REGROUP_RETURN_IF_ERROR(client.push(tables[3], bytes_of(ones_of(100))).status());
    if (i % wait_every == 0) REGROUP_RETURN_IF_ERROR(client.wait(first, kLong));
  }
  return client.flush();
}
void expect_counts(Client& client, std::int64_t count) {
  const std::vector<std::int64_t> ids = up_to(50);
  EXPECT_EQ(pull<std::int64_t>(client, open(client, kHash), ids, 4),
            std::vector<std::int64_t>(200, count));
  EXPECT_EQ(pull<std::int64_t>(client, open(client, kDirect), ids, 4),
            std::vector<std::int64_t>(200, count));
  EXPECT_EQ(pull<std::int64_t>(client, open(client, kTwoRows), {1, 0, 1}, 4),
            std::vector<std::int64_t>(12, count));
  EXPECT_EQ(pull<std::int64_t>(client, open(client, kSmallDense)),
            std::vector<std::int64_t>(100, count));
}

// Servers of all stores are killed at random moments.
TEST_F(PsPartitioned, CountsAreExactWhateverServersAreKilled) {
  std::vector<Child> keepers;
  for (std::size_t store = 0; store < kStores; ++store) {
    keepers.emplace_back([this, store] {
      const pid_t keeper = ::getpid();
      std::minstd_rand random(static_cast<unsigned>(store + 1));
      for (std::size_t i = store;; ++i) {
        const Child server([this, store, keeper] {
          ::prctl(PR_SET_PDEATHSIG, SIGKILL);
          if (::getppid() != keeper) return 1;  // it was killed before that
          return stores_[store]->served.serve();
        });
        const Served& served = stores_[store]->served;
        served.await_server(i % served.memory.get().shards.size(), server.pid());
        ::usleep(static_cast<useconds_t>(random() % 40'000));
      }
      return 0;
    });
  }
  open_gateways();
  const auto here = client(kLong, {}, 7), there = client();
  ASSERT_TRUE(here && there);
  constexpr int kTimes = 150;
  std::thread other([&] {
    const base::Status status = push_all(*there, kTimes, 7);
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
  const base::Status status = push_all(*here, kTimes, 10);
  EXPECT_TRUE(status.ok()) << status.to_string();
  other.join();
  expect_counts(*here, 2 * kTimes);
  expect_counts(*there, 2 * kTimes);
  // Each range is in the store to which it belongs, and nowhere else.
  for (const TableSpec& spec : {kHash, kDirect, kTwoRows, kSmallDense}) {
    std::vector<PositionRange> all;
    for (std::uint32_t store = 0; store < kStores; ++store) {
      std::vector<PositionRange> found = ranges_at(store, spec.name);
      std::ranges::sort(found, {}, &PositionRange::first);
      TableSpec part = spec;
      part.part = {.number = store, .of = kStores, .shards = 6};
      EXPECT_EQ(found, ranges_of(part, store + 1)) << spec.name << " in store " << store;
      all.insert(all.end(), found.begin(), found.end());
    }
    std::ranges::sort(all, {}, &PositionRange::first);
    EXPECT_EQ(all, ranges_of(spec, 6)) << spec.name;
  }
}

// A killed client is forgotten at all stores, and what it flushed stays.
TEST_F(PsPartitioned, KilledClientsLeaveTheirPushesAndNoLane) {
  start_servers();
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  std::vector<Child> killed;
  for (const std::uint64_t number : {0U, 9U}) {
    killed.emplace_back([&] {
      auto made = Client::attach(list(kLong, {}, number));
      if (!made.ok() || !push_all(**made, 5, 10).ok() || ::write(ready[1], "x", 1) != 1) return 1;
      ::pause();
      return 0;
    });
  }
  open_gateways();
  for (std::size_t begun = 0; begun < killed.size(); ++begun) {
    char word = 0;
    ASSERT_EQ(::read(ready[0], &word, 1), 1);
  }
  for (Child& one : killed) one.end(SIGKILL);
  for (const auto& store : stores_) store->await_no_client();
  const auto after = client();
  ASSERT_TRUE(after);
  expect_counts(*after, 10);
  for (const int end : ready) ::close(end);
}

class PsPartitionedDense : public PsPartitioned {
 protected:
  PsPartitionedDense() : PsPartitioned(large()) {}
  static ServerMemorySpec large() {
    ServerMemorySpec spec = Served::small(1);
    spec.segments = 1;
    spec.segment_bytes = 48 << 20;
    spec.ring_bytes = 16 << 20;
    spec.lane_bytes = 8 << 20;
    return spec;
  }
};

// Slices go to stores in turns, and come back in their places.
TEST_F(PsPartitionedDense, TensorsOfSeveralSlicesAreWhole) {
  start();
  const auto here = client(kLong, {}, 7);
  ASSERT_TRUE(here);
  TableSpec spec = kSmallDense;
  spec.name = "tensor";
  spec.rows = 4 * (kDenseSliceBytes / 8) + 1000;
  const Table table = open(*here, spec);
  EXPECT_EQ(here->spec_of(table), spec);
  std::vector<std::int64_t> values(spec.rows);
  std::iota(values.begin(), values.end(), 0);
  for (int i = 0; i < 2; ++i) {
    const auto ticket = here->push(table, bytes_of(values));
    ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
    const base::Status waited = here->wait(*ticket, kLong);
    ASSERT_TRUE(waited.ok()) << waited.to_string();
  }
  for (std::int64_t& value : values) value *= 2;
  EXPECT_TRUE(pull<std::int64_t>(*here, table) == values);
  std::vector<std::byte> little(8);
  EXPECT_EQ(here->pull(table, little).message(),
            fmt::format("pull of table tensor: expected {} bytes for {} elements, got 8",
                        8 * spec.rows, spec.rows));
  for (std::size_t store = 0; store < kStores; ++store)
    EXPECT_GE(ranges_at(store, "tensor").size(), 1U);
}

// The values with which rows begin do not depend on stores.
TEST_F(PsPartitioned, RowsBeginAsInOneStore) {
  const Served alone(Served::small(1));
  const Child server = alone.server();
  start();
  const auto one = alone.client(1);
  const auto several = client(kLong, {}, 7);
  ASSERT_TRUE(one && several);
  for (TableSpec spec : {kHash, kDirect, kSmallDense}) {
    spec.dtype = Dtype::kFloat32;
    spec.init = {InitialKind::kNormal, 0, 1};
    const Table in_one = open(*one, spec), in_several = open(*several, spec);
    if (spec.kind == TableKind::kDense) {
      EXPECT_EQ(pull<float>(*several, in_several), pull<float>(*one, in_one));
    } else {
      EXPECT_EQ(pull<float>(*several, in_several, up_to(50), 4),
                pull<float>(*one, in_one, up_to(50), 4));
    }
  }
}

TEST_F(PsPartitioned, ClientsOfOtherListsAreRefused) {
  start();
  const auto good = client(kLong, {}, 7);
  ASSERT_TRUE(good);
  for (const TableSpec& spec : {kHash, kTwoRows, kSmallDense}) {
    static_cast<void>(open(*good, spec));
    std::vector<ClientOptions> stores = list(kLong);
    // One of fewer stores, one of another order, and one of a single store.
    const auto fewer = Client::attach(std::span(stores).first(2));
    ASSERT_TRUE(fewer.ok()) << fewer.status().to_string();
    EXPECT_EQ(
        (*fewer)->open(spec).status().message(),
        fmt::format("store 0 of 2 on host node0: table {}: expected part 0 of 3 as the server "
                    "has it, got 0 of 2",
                    spec.name));
    std::swap(stores[0], stores[2]);
    const auto other = Client::attach(stores);
    ASSERT_TRUE(other.ok()) << other.status().to_string();
    EXPECT_EQ(
        (*other)->open(spec).status().message(),
        fmt::format("store 0 of 3 on host node2: table {}: expected part 2 of 3 as the server "
                    "has it, got 0 of 3",
                    spec.name));
    for (const ClientOptions& store : stores) {
      const auto single = Client::attach(store);
      ASSERT_TRUE(single.ok()) << single.status().to_string();
      EXPECT_EQ((*single)->open(spec).code(), Code::kInvalidArgument) << spec.name;
    }
    static_cast<void>(open(*good, spec));
  }
  // And the reverse: no part of a table that one store has whole.
  const auto single = stores_[0]->client();
  ASSERT_TRUE(single);
  TableSpec whole = kTwoRows;
  whole.name = "whole";
  static_cast<void>(open(*single, whole));
  EXPECT_EQ(good->open(whole).status().message(),
            fmt::format("store 0 of 3 on host {}: table whole: expected part 0 of 1 as the server "
                        "has it, got 0 of 3",
                        this_host()));
  TableSpec part = kHash;
  part.part = {.number = 0, .of = 3, .shards = 6};
  EXPECT_EQ(good->open(part).status().message(),
            "table hash: expected a whole table, got part 0 of 3; a client of several stores cuts "
            "it");
}

// A client of one store that names keys of another one, as only a damaged process does.
TEST_F(PsPartitioned, KeysOfAnotherStoreAreRefused) {
  start();
  TableSpec spec = kDirect;
  spec.part = {.number = 1, .of = 3, .shards = 6};
  const std::vector<PositionRange> own = ranges_of(spec, 1);
  for (const bool here : {true, false}) {
    ClientOptions options{
        .memory = to_text(stores_[1]->served.memory.get()), .client = 7, .deadline = kLong};
    if (!here) options.memory = to_text(stores_[1]->address);
    auto backend = Client::StoreBackend::attach(options, in(kLong));
    ASSERT_TRUE(backend.ok()) << backend.status().to_string();
    const auto table = (*backend)->open(spec);
    ASSERT_TRUE(table.ok()) << table.status().to_string();
    for (std::int64_t id = 0; id < 50; ++id) {
      const bool has = std::ranges::any_of(own, [&](const PositionRange& range) {
        return range.has(static_cast<std::uint64_t>(id));
      });
      const std::string refusal =
          fmt::format("table direct: id {} lies in another store; this one has part 1 of 3", id);
      const std::vector<std::int64_t> ids{id};
      const auto ticket = (*backend)->push(*table, ids, bytes_of(ones_of(4)), {});
      const base::Status pushed =
          ticket.ok() ? (*backend)->wait(*ticket, in(kLong)) : ticket.status();
      EXPECT_EQ(pushed.message(), has ? "" : refusal);
      std::vector<std::byte> row(32);
      EXPECT_EQ((*backend)->pull(*table, ids, row).message(), has ? "" : refusal);
    }
  }
}

TEST_F(PsPartitioned, WhatIsWrongIsRefusedBeforeAnythingIsSent) {
  start();
  const auto one = client(kLong, {}, 7);
  ASSERT_TRUE(one);
  const Table table = open(*one, kDirect), dense = open(*one, kSmallDense);
  // Key 3 occurs twice: no store must have added the others.
  const std::vector<std::int64_t> twice{0, 49, 20, 3, 3}, outside{0, 20, 50};
  EXPECT_EQ(one->push(table, twice, bytes_of(ones_of(20))).status().message(),
            "table direct: key 3 occurs twice (positions 3 and 4 of the batch); add up the "
            "gradients of a key first");
  const std::string refusal =
      "table direct: expected ids from 0 to 49, got 50 (position 2 of the batch)";
  EXPECT_EQ(one->push(table, outside, bytes_of(ones_of(12))).status().message(), refusal);
  std::vector<std::byte> rows(96);
  EXPECT_EQ(one->pull(table, outside, rows).message(), refusal);
  EXPECT_EQ(one->push(table, bytes_of(ones_of(1))).status().message(),
            "table direct: it has rows: expected ids");
  EXPECT_EQ(one->push(dense, up_to(1), bytes_of(ones_of(1))).status().message(),
            "table dense: it is dense: push and pull it as a whole, without ids");
  EXPECT_EQ(one->pull(Table{9}, outside, rows).message(),
            "table number 9: this client has opened 2 tables");
  EXPECT_EQ(one->wait(Ticket{1}, kLong).message(), "push 1: this client has begun 0 pushes");
  EXPECT_TRUE(one->push(table, std::span<const std::int64_t>(), Input()).ok());
  EXPECT_TRUE(one->flush().ok());
  EXPECT_EQ(pull<std::int64_t>(*one, table, up_to(50), 4), std::vector<std::int64_t>(200, 0));
  EXPECT_EQ(Client::attach(std::span<const ClientOptions>()).code(), Code::kInvalidArgument);
}

// Of a push whose store 2 has no server for a time, the rest counts at once.
TEST_F(PsPartitioned, AStoreThatIsLateIsNamed) {
  start();
  const auto one = with_deadlines();
  ASSERT_TRUE(one);
  const auto table = one->open(kHash);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  servers_[2].stop();
  const auto ticket = push_ones(*one, *table, up_to(50));
  ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
  for (const base::Status& late : {one->flush(in(kShort)), one->wait(*ticket, in(200ms))}) {
    EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late.to_string();
    EXPECT_TRUE(late.message().starts_with("store 2 of 3 on host node2: ")) << late.message();
  }
  servers_[2].signal(SIGCONT);
  const base::Status waited = one->wait(*ticket, in(kLong));
  EXPECT_TRUE(waited.ok()) << waited.to_string();
  EXPECT_TRUE(one->wait(*ticket, in(kLong)).ok());
  std::vector<std::int64_t> rows(200);
  EXPECT_TRUE(one->pull(*table, up_to(50), std::as_writable_bytes(std::span(rows))).ok());
  EXPECT_EQ(rows, std::vector<std::int64_t>(200, 1));
}

// Store 0 has refused a push while store 2 was late: the error is of the next flush().
TEST_F(PsPartitioned, AnErrorBesideAStoreThatIsLateIsKept) {
  start();
  const auto one = with_deadlines();
  ASSERT_TRUE(one);
  const auto table = one->open(kHash);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  const std::vector<std::int64_t> fresh = fill_store_0(*one, *table);
  for (const bool waits : {false, true}) {
    servers_[2].stop();
    const auto refused = push_ones(*one, *table, fresh);
    const auto late = push_ones(*one, *table, {id_at(2)});
    ASSERT_TRUE(refused.ok() && late.ok());
    await_answers_of_store_0();
    EXPECT_EQ(one->flush(in(1ms)).code(), Code::kDeadlineExceeded);
    servers_[2].signal(SIGCONT);
    if (waits) {
      EXPECT_EQ(one->wait(*refused, in(kLong)).code(), Code::kResourceExhausted);
    } else {
      EXPECT_EQ(one->flush(in(kLong)).code(), Code::kResourceExhausted);
    }
    EXPECT_TRUE(one->flush(in(kLong)).ok());
    EXPECT_TRUE(one->wait(*late, in(kLong)).ok());
  }
}

// Keys of other stores are served as before, for the same client and for others.
TEST_F(PsPartitioned, AHostThatIsLostIsNamed) {
  start();
  const auto one = client(kLong, {}, 7);
  ASSERT_TRUE(one);
  const Table table = open(*one, kHash);
  const std::vector<std::int64_t> ids = up_to(50);
  const auto ticket = one->push(table, ids, bytes_of(ones_of(200)));
  ASSERT_TRUE(ticket.ok() && one->wait(*ticket, kLong).ok());
  stores_[1]->gateway.reset();
  std::vector<std::byte> rows(50 * 32);
  const std::string lost =
      "store 1 of 3 on host node1: the parameter server on host node1 (127.0.0.1 port";
  for (const base::Status& status : {one->pull(table, ids, rows), one->flush(), one->flush(),
                                     one->push(table, ids, bytes_of(ones_of(200))).status()}) {
    EXPECT_EQ(status.code(), Code::kPeerLost) << status.to_string();
    EXPECT_TRUE(status.message().starts_with(lost)) << status.message();
  }
  std::size_t elsewhere = 0;
  for (const std::int64_t id : ids) {
    const bool has = store_of(id) == 1;
    std::vector<std::byte> row(32);
    const base::Status pulled = one->pull(table, std::vector<std::int64_t>{id}, row);
    EXPECT_EQ(pulled.code(), has ? Code::kPeerLost : Code::kOk) << pulled.to_string();
    elsewhere += has ? 0 : 1;
  }
  EXPECT_GT(elsewhere, 0U);
  EXPECT_LT(elsewhere, ids.size());
}

// ---- more pushes than a client knows by number

constexpr int kMany = 4500;

TEST_F(PsPartitioned, PushesThatNobodyWaitsForCount) {
  start();
  const auto one = client(kLong, {}, 7);
  ASSERT_TRUE(one);
  const Table table = open(*one, kDirect);
  std::optional<Ticket> first;
  for (int i = 0; i < kMany; ++i) {
    const std::vector<std::int64_t> ids{i % 50};
    const auto ticket = one->push(table, ids, bytes_of(ones_of(4)));
    ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
    if (!first) first = *ticket;
  }
  EXPECT_TRUE(one->wait(*first, kLong).ok());
  EXPECT_TRUE(one->flush().ok());
  EXPECT_EQ(pull<std::int64_t>(*one, table, up_to(50), 4),
            std::vector<std::int64_t>(200, kMany / 50));
}

// Store 1 is lost while every 64th push waits for its server.
TEST_F(PsPartitioned, EachPushThatIsLostSaysSo) {
  start();
  const auto one = with_deadlines();
  ASSERT_TRUE(one);
  const auto table = one->open(kHash);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  const std::int64_t here = id_at(0), there = id_at(1);
  servers_[1].stop();
  std::vector<Ticket> tickets;
  for (int i = 0; i < kMany; ++i) {
    const bool loses = i % 64 == 0 && i < 900;
    if (i == 900) stores_[1]->gateway.reset();
    const auto ticket = push_ones(*one, *table, {loses ? there : here});
    ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
    tickets.push_back(*ticket);
  }
  EXPECT_EQ(one->flush(in(kLong)).code(), Code::kPeerLost);
  for (int again = 0; again < 2; ++again) {
    for (std::size_t i = 0; i < tickets.size(); ++i) {
      const bool loses = i % 64 == 0 && i < 900;
      const base::Status status = one->wait(tickets[i], in(kLong));
      ASSERT_EQ(status.code(), loses ? Code::kPeerLost : Code::kOk) << i << status.to_string();
      if (!loses) continue;
      ASSERT_TRUE(status.message().starts_with("store 1 of 3 on host node1: ")) << status.message();
    }
  }
  EXPECT_EQ(one->flush(in(kLong)).code(), Code::kPeerLost);
}

// Of two that a full store refuses, one was late at another store when it was waited for.
TEST_F(PsPartitioned, EachPushThatIsRefusedSaysSo) {
  start();
  const auto one = with_deadlines();
  ASSERT_TRUE(one);
  const auto table = one->open(kHash);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  const std::vector<std::int64_t> fresh = fill_store_0(*one, *table);
  servers_[2].stop();
  std::vector<std::int64_t> both = fresh;
  both.push_back(id_at(2));
  const auto late = push_ones(*one, *table, both);
  ASSERT_TRUE(late.ok()) << late.status().to_string();
  await_answers_of_store_0();
  EXPECT_EQ(one->wait(*late, in(1ms)).code(), Code::kDeadlineExceeded);
  servers_[2].signal(SIGCONT);
  std::vector<Ticket> tickets;
  for (int i = 0; i < kMany; ++i) {
    const auto ticket = push_ones(*one, *table, i == 17 ? fresh : std::vector{id_at(0)});
    ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
    tickets.push_back(*ticket);
  }
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    const base::Status status = one->wait(tickets[i], in(kLong));
    ASSERT_EQ(status.code(), i == 17 ? Code::kResourceExhausted : Code::kOk)
        << i << status.to_string();
  }
  EXPECT_EQ(one->wait(*late, in(kLong)).code(), Code::kResourceExhausted);
  EXPECT_TRUE(one->flush(in(kLong)).ok());
}

TEST_F(PsPartitioned, ErrorsThatNobodyAsksForAreLimited) {
  start();
  const auto one = with_deadlines();
  ASSERT_TRUE(one);
  const auto table = one->open(kHash);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  const std::vector<std::int64_t> fresh = fill_store_0(*one, *table);
  base::Status refused;
  int begun = 0;
  for (; begun < kMany && refused.ok(); ++begun) refused = push_ones(*one, *table, fresh).status();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_TRUE(
      refused.message().starts_with("push to table hash: 1250 pushes have failed since the "
                                    "last flush(); the first: store 0 of 3 on host"))
      << refused.message();
  EXPECT_GT(begun, 1024);
  EXPECT_EQ(one->flush(in(kLong)).code(), Code::kResourceExhausted);
  EXPECT_TRUE(one->flush(in(kLong)).ok());
  const auto ticket = push_ones(*one, *table, {id_at(0)});
  ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
  EXPECT_TRUE(one->wait(*ticket, in(kLong)).ok());
}

// ---- mode ssp

TEST_F(PsPartitioned, ClocksBoundPullsAtEachStore) {
  start();
  const auto slow = client(kLong, bounded(1), 7), fast = client(kLong, bounded(1));
  ASSERT_TRUE(slow && fast);
  const Table theirs = open(*slow, kHash), table = open(*fast, kHash);
  const std::vector<std::int64_t> ids = up_to(50);
  for (std::uint64_t turn = 1; turn <= 2; ++turn) {
    ASSERT_TRUE(fast->push(table, ids, bytes_of(ones_of(200))).ok());
    // It reads its own writes at all stores.
    EXPECT_EQ(pull<std::int64_t>(*fast, table, ids, 4),
              std::vector<std::int64_t>(200, static_cast<std::int64_t>(turn)));
    const auto clock = fast->advance();
    ASSERT_TRUE(clock.ok()) << clock.status().to_string();
    EXPECT_EQ(*clock, turn);
  }
  EXPECT_EQ(fast->clock(), 2U);
  std::thread pulling([&] {
    EXPECT_EQ(pull<std::int64_t>(*fast, table, ids, 4), std::vector<std::int64_t>(200, 3));
  });
  for (const auto& store : stores_) {
    const MappedShard shard = store->served.map(0);
    const auto waits = [&] {
      for (std::uint32_t i = 0; i < shard.lanes.spec().lanes; ++i) {
        if (shard.lanes.lane(i).waits_for.load() != 0) return true;
      }
      return false;
    };
    const base::TimePoint end = in(kLong);
    while (!waits() && in(0ms) < end) ::usleep(200);
    EXPECT_TRUE(waits()) << store->address.host << " holds up no pull";
  }
  EXPECT_TRUE(slow->push(theirs, ids, bytes_of(ones_of(200))).ok());
  const auto clock = slow->advance();
  EXPECT_TRUE(clock.ok()) << clock.status().to_string();
  pulling.join();
}

// A store whose clients were behind, as after the end of one in the middle of its turn.
TEST_F(PsPartitioned, AClientBeginsAtTheHighestClockOfAllStores) {
  start();
  const auto ahead = stores_[1]->attach(kLong, bounded(2));
  ASSERT_TRUE(ahead.ok()) << ahead.status().to_string();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE((*ahead)->advance().ok());
  const auto one = client(kLong, bounded(2), 7);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->clock(), 5U);
  for (const auto& store : stores_) {
    const auto next = store->attach(kLong, bounded(2));
    ASSERT_TRUE(next.ok()) << next.status().to_string();
    EXPECT_EQ((*next)->clock(), 5U) << store->address.host;
  }
  EXPECT_EQ(*one->advance(), 6U);
}

// One that waits for a dead client goes on at all stores.
TEST_F(PsPartitioned, KilledClientsHoldUpNobody) {
  start_servers();
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  Child killed([&] {
    const auto made = Client::attach(list(kLong, bounded(0), 9));
    if (!made.ok() || !(*made)->open(kHash).ok() || ::write(ready[1], "x", 1) != 1) return 1;
    ::pause();
    return 0;
  });
  open_gateways();
  char word = 0;
  ASSERT_EQ(::read(ready[0], &word, 1), 1);
  const auto one = client(kLong, bounded(0));
  ASSERT_TRUE(one);
  const Table table = open(*one, kHash);
  ASSERT_TRUE(one->advance().ok());
  std::thread pulling([&] {
    EXPECT_EQ(pull<std::int64_t>(*one, table, up_to(50), 4), std::vector<std::int64_t>(200, 0));
  });
  killed.end(SIGKILL);
  pulling.join();
  for (const int end : ready) ::close(end);
}

}  // namespace
}  // namespace regroup::collective::ps::testing::partitioned
