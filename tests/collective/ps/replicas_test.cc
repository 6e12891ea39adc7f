// Tables with replicas at several stores, some of which are lost: what was acknowledged is there,
// and nothing is there twice.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "collective/ps/backend.h"
#include "collective/ps/partition.h"
#include "tests/collective/ps/hosts.h"

namespace regroup::collective::ps::testing::replicated {
namespace {

using base::Code;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

TableSpec table_of(TableKind kind, std::uint64_t rows, const std::string& name) {
  return {.name = name,
          .kind = kind,
          .rows = rows,
          .dim = kind == TableKind::kDense ? 1U : 4U,
          .dtype = Dtype::kInt64};
}
const TableSpec kHash = table_of(TableKind::kHash, 0, "hash");
const TableSpec kTwoRows = table_of(TableKind::kDirect, 2, "two");
const TableSpec kDense = table_of(TableKind::kDense, 100, "dense");

// Adds 1 to each element of all tables.
base::Status add_one(Client& client, bool waits) {
  REGROUP_ASSIGN_OR_RETURN(const Table hash, client.open(kHash));
  REGROUP_ASSIGN_OR_RETURN(const Table two, client.open(kTwoRows));
  REGROUP_ASSIGN_OR_RETURN(const Table dense, client.open(kDense));
  REGROUP_ASSIGN_OR_RETURN(const Ticket first,
                           client.push(hash, up_to(50), bytes_of(ones_of(200))));
  REGROUP_RETURN_IF_ERROR(client.push(two, up_to(2), bytes_of(ones_of(8))).status());
  REGROUP_RETURN_IF_ERROR(client.push(dense, bytes_of(ones_of(100))).status());
  return waits ? client.wait(first, kLong) : base::Status();
}
void expect_counts(Client& client, std::int64_t count) {
  EXPECT_EQ(pull<std::int64_t>(client, open(client, kHash), up_to(50), 4),
            std::vector<std::int64_t>(200, count));
  EXPECT_EQ(pull<std::int64_t>(client, open(client, kTwoRows), {1, 0, 1}, 4),
            std::vector<std::int64_t>(12, count));
  EXPECT_EQ(pull<std::int64_t>(client, open(client, kDense)),
            std::vector<std::int64_t>(100, count));
}
// The first id of kHash whose ranges have this home, of `stores`.
std::int64_t id_at(std::size_t home, std::uint32_t stores) {
  const TablePartition partition(kHash, stores, 2 * stores, 2);
  std::int64_t id = 0;
  while (partition.home_of(position_of(TableKind::kHash, id)) != home) ++id;
  return id;
}

class PsReplicas : public ::testing::Test {
 protected:
  // Each client pushes `rounds` times, and one store after the other is lost meanwhile, of `lost`.
  static void push_while_stores_are_lost(Hosts& hosts, const std::vector<std::uint64_t>& numbers,
                                         const std::vector<std::size_t>& lost,
                                         std::uint32_t replicas) {
    constexpr int kRounds = 60;
    std::vector<std::unique_ptr<Client>> clients;
    for (const std::uint64_t number : numbers)
      clients.push_back(hosts.client(number, {}, replicas));
    std::atomic<int> rounds = 0;
    std::vector<std::thread> threads;
    for (const auto& client : clients) {
      threads.emplace_back([&rounds, &client] {
        base::Status status;
        for (int i = 0; i < kRounds && status.ok(); ++i, ++rounds)
          status = add_one(*client, i % 7 == 0);
        if (status.ok()) status = client->flush();
        EXPECT_TRUE(status.ok()) << status.to_string();
        rounds = 1'000'000;  // others do not wait for one that has failed
      });
    }
    const auto await_rounds = [&](int count) {
      for (const base::TimePoint end = in(kLong); rounds < count; ::usleep(200))
        ASSERT_LT(in(0s), end) << "no progress after " << rounds << " rounds";
    };
    int begun = 10;
    for (const std::size_t host : lost) {
      await_rounds(begun);
      hosts.lose(host);
      hosts.note_lost(host);
      begun += 15;
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& client : clients)
      expect_counts(*client, kRounds * static_cast<std::int64_t>(numbers.size()));
  }
};

TEST_F(PsReplicas, NothingThatIsAcknowledgedIsLostWithAStore) {
  Hosts hosts({1, 2, 1});
  // On host 0, on host 2, on none, and on host 0 again.
  push_while_stores_are_lost(hosts, {0, 2, 3, 4}, {1}, 2);
}

TEST_F(PsReplicas, StoresMayBeLostAsLongAsAReplicaLives) {
  Hosts hosts({1, 1, 2});
  push_while_stores_are_lost(hosts, {2, 3}, {0, 1}, 3);
  const auto late = hosts.client(7, {}, 3);  // attaches at store 2 alone
  ASSERT_TRUE(late);
  expect_counts(*late, 120);
}

// The launcher alone says that a store is lost. Until then each call waits, to its deadline.
TEST_F(PsReplicas, ACallWaitsUntilTheLauncherSaysThatAStoreIsLost) {
  Hosts hosts({1, 1});
  auto made = Client::attach(hosts.list(2, {}, 1s), 2);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  Client& client = **made;
  const Table table = open(client, kHash);
  const auto push = [&] { return client.push(table, up_to(50), bytes_of(ones_of(200))); };
  ASSERT_TRUE(push().ok() && client.flush().ok());
  hosts.server(0).stop();
  const auto ticket = push();  // store 1 has it, perhaps, and store 0 takes it later
  ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
  hosts.lose(1);
  hosts.server(0).signal(SIGCONT);
  const std::string lost =
      "store 1 of 2 on host node1: the parameter server on host node1 (127.0.0.1 port ";
  const std::string waits =
      "; other stores have replicas of its ranges, but the launcher has not declared this store "
      "lost "
      "before the deadline";
  std::vector<std::int64_t> rows(200);
  for (const base::Status& late :
       {client.wait(*ticket, 300ms), client.flush(),
        client.pull(table, up_to(50), std::as_writable_bytes(std::span(rows)))}) {
    EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late.to_string();
    EXPECT_TRUE(late.message().starts_with(lost)) << late.message();
    EXPECT_TRUE(late.message().ends_with(waits)) << late.message();
  }
  const auto attached = Client::attach(hosts.list(5, {}, 3s), 2);
  EXPECT_EQ(attached.status().code(), Code::kDeadlineExceeded) << attached.status().to_string();
  EXPECT_TRUE(attached.status().message().ends_with(waits)) << attached.status().message();
  hosts.note_lost(1);
  base::Status waited = client.wait(*ticket, kLong);
  EXPECT_TRUE(waited.ok()) << waited.to_string();
  waited = client.flush();
  EXPECT_TRUE(waited.ok()) << waited.to_string();
  EXPECT_EQ(pull<std::int64_t>(client, table, up_to(50), 4), std::vector<std::int64_t>(200, 2));
}

// A host that hangs keeps its connections: calls there are late, and others know that it is lost.
TEST_F(PsReplicas, CallsGoOnWithoutASilentStoreThatIsLost) {
  Hosts hosts({1, 1});
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<Table> tables;
  for (const std::uint64_t number : {2U, 5U}) {
    auto made = Client::attach(hosts.list(number, {}, 2s), 2);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    clients.push_back(std::move(*made));
    tables.push_back(open(*clients.back(), kHash));
  }
  const std::vector<std::int64_t> ids{id_at(1, 2)};
  const auto push = [&] { return clients[0]->push(tables[0], ids, bytes_of(ones_of(4))); };
  ASSERT_TRUE(push().ok() && clients[0]->flush().ok());
  hosts.gateway(1).stop();
  const auto ticket = push();
  ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
  EXPECT_EQ(clients[0]->wait(*ticket, 300ms).code(), Code::kDeadlineExceeded);
  hosts.note_lost(1);
  const base::TimePoint end = in(kLong);
  const auto again = [end](const auto& call) {
    base::Status status = call();
    while (status.code() == Code::kDeadlineExceeded && in(0s) < end) status = call();
    EXPECT_TRUE(status.ok()) << status.to_string();
  };
  again([&] { return clients[0]->wait(*ticket, 100ms); });
  std::vector<std::int64_t> row(4);
  again([&] { return clients[1]->pull(tables[1], ids, std::as_writable_bytes(std::span(row))); });
  EXPECT_EQ(row, std::vector<std::int64_t>(4, 2));
  hosts.gateway(1).signal(SIGCONT);  // the clients say goodbye to it
}

TEST_F(PsReplicas, ClientsDoNotConnectToAStoreOfWhichTheyKnowThatItIsLost) {
  Hosts hosts({1, 1, 1});
  ASSERT_TRUE(hosts.client(3, {}, 2));  // all gateways have begun
  hosts.lose(1);
  hosts.note_lost(1);
  const auto late = hosts.client(7, {}, 2);
  ASSERT_TRUE(late && add_one(*late, true).ok());
  expect_counts(*late, 1);
  EXPECT_FALSE(hosts.is_called(1));
}

// Of three stores with two replicas two are lost: ranges of home 1 were there only.
TEST_F(PsReplicas, RangesWithoutAReplicaSaySoAndOthersAreServed) {
  Hosts hosts({1, 1, 1});
  const auto one = hosts.client(3, {}, 2);
  ASSERT_TRUE(one);
  const Table table = open(*one, kHash);
  const auto push = [&](std::size_t home) -> base::Status {
    const std::vector<std::int64_t> ids{id_at(home, 3)};
    REGROUP_ASSIGN_OR_RETURN(const Ticket ticket, one->push(table, ids, bytes_of(ones_of(4))));
    return one->wait(ticket, kLong);
  };
  for (std::size_t home = 0; home < 3; ++home) ASSERT_TRUE(push(home).ok());
  for (const std::size_t host : {1U, 2U}) {
    hosts.lose(host);
    hosts.note_lost(host);
  }
  const std::string lost =
      ": all replicas of some ranges are lost: store 1 of 3 on host node1, store 2 of 3 on host "
      "node2";
  const auto expect_state = [&](Client& client, Table its) {
    for (std::size_t home = 0; home < 3; ++home) {
      std::vector<std::int64_t> row(4);
      const base::Status pulled = client.pull(its, std::vector<std::int64_t>{id_at(home, 3)},
                                              std::as_writable_bytes(std::span(row)));
      if (home == 1) {
        EXPECT_EQ(pulled.code(), Code::kPeerLost);
        EXPECT_EQ(pulled.message(), "pull of table hash" + lost);
      } else {
        EXPECT_TRUE(pulled.ok()) << pulled.to_string();
        EXPECT_EQ(row, ones_of(4)) << home;
      }
    }
  };
  expect_state(*one, table);
  EXPECT_EQ(push(1).message(), "push to table hash" + lost);
  EXPECT_EQ(one->flush().message(), "flush" + lost);
  const auto late = hosts.client(7, {}, 2);
  ASSERT_TRUE(late);
  expect_state(*late, open(*late, kHash));
  for (const std::size_t home : {0U, 2U}) {
    const base::Status pushed = push(home);
    EXPECT_TRUE(pushed.ok()) << pushed.to_string();
  }
}

TEST_F(PsReplicas, ClientsOfAnotherNumberOfReplicasAreRefused) {
  Hosts hosts({1, 1, 1});
  const auto good = hosts.client(3, {}, 2), more = hosts.client(7, {}, 3), none = hosts.client(11);
  ASSERT_TRUE(good && more && none);
  static_cast<void>(open(*good, kHash));
  for (const auto& [client, replicas] : {std::pair(more.get(), 3), std::pair(none.get(), 1)}) {
    EXPECT_EQ(client->open(kHash).status().message(),
              fmt::format("store 0 of 3 on host node0: table hash: expected part 0 of 3 "
                          "(replicas=2) as the server has it, got 0 of 3 (replicas={})",
                          replicas));
  }
  for (const std::uint32_t wrong : {0U, 4U}) {
    EXPECT_EQ(Client::attach(hosts.list(3), wrong).status().message(),
              fmt::format("client: expected 1 to 3 replicas in 3 stores, got {}", wrong));
  }
}

// A new client does not know the lost store, and opens what others have opened before and what
// nobody has.
TEST_F(PsReplicas, ClientsThatAttachLaterSkipALostStore) {
  Hosts hosts({2, 1, 1});
  const auto before = hosts.client(3, {}, 2);
  ASSERT_TRUE(before);
  ASSERT_TRUE(add_one(*before, true).ok() && before->flush().ok());
  hosts.lose(0);
  hosts.note_lost(0);
  const auto late = hosts.client(7, {}, 2);
  ASSERT_TRUE(late);
  expect_counts(*late, 1);
  TableSpec fresh = kHash;
  fresh.name = "fresh";
  const Table table = open(*late, fresh), same = open(*before, fresh);
  for (Client* const client : {late.get(), before.get()}) {
    ASSERT_TRUE(
        client->push(client == late.get() ? table : same, up_to(50), bytes_of(ones_of(200))).ok());
    const base::Status flushed = client->flush();
    ASSERT_TRUE(flushed.ok()) << flushed.to_string();
  }
  EXPECT_EQ(pull<std::int64_t>(*late, table, up_to(50), 4), std::vector<std::int64_t>(200, 2));
}

// Slices of a tensor come back in their places, whichever stores live.
TEST_F(PsReplicas, TensorsOfSeveralSlicesAreWhole) {
  ServerMemorySpec large = Served::small(1);
  large.segments = 1;
  large.segment_bytes = 64 << 20;
  large.ring_bytes = 16 << 20;
  large.lane_bytes = 8 << 20;
  Hosts hosts(3, large);
  const auto one = hosts.client(3, {}, 2);
  ASSERT_TRUE(one);
  TableSpec spec = kDense;
  spec.name = "tensor";
  spec.rows = 4 * (kDenseSliceBytes / 8) + 1000;
  const Table table = open(*one, spec);
  std::vector<std::int64_t> values(spec.rows);
  std::iota(values.begin(), values.end(), 0);
  std::vector<std::int64_t> sums(spec.rows);
  for (const std::size_t lost : {3U, 1U}) {
    if (lost < hosts.count()) {
      hosts.lose(lost);
      hosts.note_lost(lost);
    }
    const auto ticket = one->push(table, bytes_of(values));
    ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
    const base::Status waited = one->wait(*ticket, kLong);
    ASSERT_TRUE(waited.ok()) << waited.to_string();
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
    EXPECT_TRUE(pull<std::int64_t>(*one, table) == sums) << "store " << lost << " is lost";
  }
}

// Mode ssp: what a pull at a clock must have it has, though a store is lost in mid-run.
TEST_F(PsReplicas, ClocksBoundPullsWhenAStoreIsLost) {
  constexpr std::int64_t kTurns = 40;
  const Consistency bounded{.mode = Mode::kSsp, .staleness = 1};
  Hosts hosts({1, 1, 1});
  std::vector<std::unique_ptr<Client>> clients;
  for (const std::uint64_t number : {0U, 3U, 7U})
    clients.push_back(hosts.client(number, bounded, 2));
  std::atomic<std::int64_t> turns = 0;
  std::vector<std::thread> threads;
  for (const auto& client : clients) {
    threads.emplace_back([&turns, &client] {
      const Table table = open(*client, kHash);
      base::Status status;
      for (std::int64_t turn = 0; turn < kTurns && status.ok(); ++turn, ++turns) {
        const auto rows = pull<std::int64_t>(*client, table, up_to(50), 4);
        // Its own turns, and all but the last one of the two others.
        EXPECT_GE(std::ranges::min(rows), turn + 2 * std::max<std::int64_t>(turn - 1, 0));
        status = client->push(table, up_to(50), bytes_of(ones_of(200))).status();
        if (status.ok()) status = client->advance().status();
      }
      EXPECT_TRUE(status.ok()) << status.to_string();
      turns = 1'000'000;
    });
  }
  for (const base::TimePoint end = in(kLong); turns < 30; ::usleep(200))
    ASSERT_LT(in(0s), end) << "no progress after " << turns << " turns";
  hosts.lose(1);
  hosts.note_lost(1);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(clients[0]->clock(), static_cast<std::uint64_t>(kTurns));
  clients.erase(clients.begin() + 1, clients.end());
  EXPECT_EQ(pull<std::int64_t>(*clients[0], open(*clients[0], kHash), up_to(50), 4),
            std::vector<std::int64_t>(200, 3 * kTurns));
}

}  // namespace
}  // namespace regroup::collective::ps::testing::replicated
