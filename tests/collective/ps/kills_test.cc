// Servers that are killed with SIGKILL at random moments while processes push through lanes. Every
// push adds 1 to each of its keys, so the value of a key is the number of acknowledged pushes that
// name it; of a client that was killed, too, those in doubt may count in addition. 20 kills; 2,000
// with REGROUP_TEST_FULL.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <new>
#include <random>

#include "tests/collective/ps/served.h"

namespace regroup::collective::ps::testing::kills {
namespace {

using std::chrono_literals::operator""ms;

constexpr std::size_t kClients = 3, kKeys = 500, kKeysOfPush = 8, kDim = 4, kOpenPushes = 4;

TableSpec counts() {
  return {.name = "counts", .kind = TableKind::kHash, .dim = kDim, .dtype = Dtype::kInt64};
}
TableSpec dense() { return {.name = "dense", .rows = 100, .dtype = Dtype::kInt64}; }

// What a client's process says; it stays when the process is killed.
struct Said {
  std::atomic<std::int64_t> acknowledged[kKeys];  // pushes, by key
  std::atomic<std::int64_t> in_doubt[kKeys];
  std::atomic<std::int64_t> dense_acknowledged, dense_in_doubt;
  std::atomic<std::uint64_t> pushes;
};
struct Shared {
  std::atomic<bool> stop;
  Said said[kClients + 1];  // the last one is of clients that are killed
};

struct Begun {
  Ticket ticket;
  std::vector<std::int64_t> ids;  // empty: of the dense table
};

void add(Said& said, const Begun& push, bool acknowledged, std::int64_t count) {
  if (push.ids.empty()) (acknowledged ? said.dense_acknowledged : said.dense_in_doubt) += count;
  for (const std::int64_t id : push.ids)
    (acknowledged ? said.acknowledged : said.in_doubt)[static_cast<std::size_t>(id)] += count;
}

// Pushes until it is told to stop, then waits for all acknowledgements.
int push_all(const Served& served, std::uint64_t number, Said& said,
             const std::atomic<bool>& stop) {
  const auto client = served.attach(number);
  if (!client.ok()) return 1;
  const auto rows = (*client)->open(counts()), tensor = (*client)->open(dense());
  if (!rows.ok() || !tensor.ok()) return 2;
  const std::vector<std::int64_t> ones(100, 1);
  const auto bytes = std::as_bytes(std::span(ones));
  std::mt19937_64 random(number);
  std::deque<Begun> open;
  const auto acknowledge = [&] {
    const base::Status status = (*client)->wait(open.front().ticket, kLong);
    if (!status.ok()) {
      ::dprintf(2, "client %d: %s\n", static_cast<int>(number), status.to_string().c_str());
      return false;
    }
    add(said, open.front(), true, 1);
    add(said, open.front(), false, -1);
    open.pop_front();
    ++said.pushes;
    return true;
  };
  while (!stop.load()) {
    Begun push;
    if (random() % 4 != 0) {
      while (push.ids.size() < kKeysOfPush) {
        const auto id = static_cast<std::int64_t>(random() % kKeys);
        if (std::ranges::find(push.ids, id) == push.ids.end()) push.ids.push_back(id);
      }
    }
    add(said, push, false, 1);
    const auto ticket =
        push.ids.empty() ? (*client)->push(*tensor, bytes)
                         : (*client)->push(*rows, push.ids,
                                           bytes.first(kKeysOfPush * kDim * sizeof(std::int64_t)));
    if (!ticket.ok()) return 3;
    push.ticket = *ticket;
    open.push_back(push);
    while (open.size() >= kOpenPushes) {
      if (!acknowledge()) return 4;
    }
  }
  while (!open.empty()) {
    if (!acknowledge()) return 5;
  }
  return 0;
}

// A server that the kernel kills after `ns` nanoseconds.
int serve_until_killed(const Served& served, long ns) {
  timer_t timer{};
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  const itimerspec at{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = ns}};
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
      ::timer_settime(timer, 0, &at, nullptr) != 0)
    return 2;
  return served.serve();
}

class Kills : public ::testing::Test {
 protected:
  explicit Kills(const ServerMemorySpec& spec = Served::small()) : served_(spec) {
    void* const memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = new (memory) Shared();
  }
  ~Kills() override { ::munmap(shared_, sizeof(Shared)); }
  Kills(const Kills&) = delete;
  Kills& operator=(const Kills&) = delete;

  [[nodiscard]] std::uint64_t pushes() const {
    std::uint64_t sum = 0;
    for (const Said& said : shared_->said) sum += said.pushes.load();
    return sum;
  }
  // Compares all values with what clients said. Nothing is pushed meanwhile.
  void check(const Client& client, Table rows, Table tensor) const {
    std::vector<std::int64_t> ids(kKeys);
    for (std::size_t i = 0; i < kKeys; ++i) ids[i] = static_cast<std::int64_t>(i);
    const auto values = pull<std::int64_t>(client, rows, ids, kDim);
    std::int64_t dense_least = 0, dense_doubt = 0;
    std::vector<std::int64_t> least(kKeys), doubt(kKeys);
    for (const Said& said : shared_->said) {
      for (std::size_t i = 0; i < kKeys; ++i) least[i] += said.acknowledged[i].load();
      for (std::size_t i = 0; i < kKeys; ++i) doubt[i] += said.in_doubt[i].load();
      dense_least += said.dense_acknowledged.load();
      dense_doubt += said.dense_in_doubt.load();
    }
    for (std::size_t i = 0; i < kKeys; ++i) {
      for (std::size_t e = 0; e < kDim; ++e) {
        const std::int64_t value = values[i * kDim + e];
        ASSERT_TRUE(value >= least[i] && value <= least[i] + doubt[i])
            << "key " << i << ": expected " << least[i] << " to " << least[i] + doubt[i] << ", got "
            << value;
      }
    }
    for (const std::int64_t value : pull<std::int64_t>(client, tensor))
      ASSERT_TRUE(value >= dense_least && value <= dense_least + dense_doubt) << value;
  }

  const Served served_;
  Shared* shared_;
};

TEST_F(Kills, NoPushIsLostOrDoubledHoweverOftenServersAreKilled) {
  const int kills = std::getenv("REGROUP_TEST_FULL") != nullptr ? 2000 : 20;
  std::vector<Child> clients;
  for (std::size_t i = 0; i < kClients; ++i) {
    clients.emplace_back(
        [&, i] { return push_all(served_, i + 1, shared_->said[i], shared_->stop); });
  }
  // One more, which is killed, too, and begins again under the next number.
  std::uint64_t number = 100;
  const auto begin_victim = [&] {
    return Child(
        [&, number] { return push_all(served_, number, shared_->said[kClients], shared_->stop); });
  };
  Child victim = begin_victim();
  std::mt19937 random(2);
  for (int kill = 0; kill < kills; ++kill) {
    const std::uint64_t before = pushes();
    // Half of them die about when they attach, the others once a push of theirs is acknowledged.
    Child server = kill % 2 == 0
                       ? Child([&, ns = 20'000 + static_cast<long>(random() % 3'000'000)] {
                           return serve_until_killed(served_, ns);
                         })
                       : served_.server();
    if (kill % 2 != 0) {
      for (const base::TimePoint end = in(kLong); pushes() == before;) {
        ASSERT_LT(in(0ms), end) << "nothing is acknowledged";
        ::usleep(200);
      }
      ::usleep(random() % 2000);
      server.signal(SIGKILL);
    }
    const int status = server.end();
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    if (kill % 5 == 4) {
      ASSERT_TRUE(WIFSIGNALED(victim.end(SIGKILL)));
      ++number;
      victim = begin_victim();
    }
  }
  Child server = served_.server();
  const std::uint64_t enough = pushes() + 500;  // the log ring wraps
  for (const base::TimePoint end = in(kLong); pushes() < enough;) {
    ASSERT_LT(in(0ms), end) << pushes() << " pushes";
    ::usleep(1000);
  }
  shared_->stop = true;
  for (Child& client : clients) EXPECT_EQ(client.end(), 0);
  EXPECT_EQ(victim.end(), 0);
  const auto client = served_.client(1'000'000);
  check(*client, open(*client, counts()), open(*client, dense()));
  EXPECT_EQ(server.end(SIGTERM), 0);
  RecordProperty("pushes", static_cast<int>(pushes()));
}

constexpr std::uint32_t kServers = 3;
class KillsOfSeveral : public Kills {
 protected:
  KillsOfSeveral() : Kills(Served::small(kServers)) { served_.assign({0, 1, 2}); }
  // A client for each of kClients, until shared_->stop.
  [[nodiscard]] std::vector<Child> clients() {
    std::vector<Child> out;
    for (std::size_t i = 0; i < kClients; ++i) {
      out.emplace_back(
          [&, i] { return push_all(served_, i + 1, shared_->said[i], shared_->stop); });
    }
    return out;
  }
  void await_pushes(std::uint64_t count) const {
    for (const base::TimePoint end = in(kLong); pushes() < count;) {
      ASSERT_LT(in(0ms), end) << pushes() << " pushes";
      ::usleep(200);
    }
  }
  void check_all() {
    const auto client = served_.client(1'000'000);
    check(*client, open(*client, counts()), open(*client, dense()));
  }
};

// Any of three servers is killed, and now and then a client; the others go on.
TEST_F(KillsOfSeveral, NoPushIsLostOrDoubledHoweverOftenOneOfThemIsKilled) {
  const int kills = std::getenv("REGROUP_TEST_FULL") != nullptr ? 2000 : 20;
  std::vector<Child> servers;
  for (std::uint32_t i = 0; i < kServers; ++i) servers.push_back(served_.server(i));
  std::vector<Child> pushing = clients();
  std::uint64_t number = 100;
  const auto begin_victim = [&] {
    return Child(
        [&, number] { return push_all(served_, number, shared_->said[kClients], shared_->stop); });
  };
  Child victim = begin_victim();
  std::mt19937 random(3);
  for (int kill = 0; kill < kills; ++kill) {
    ASSERT_NO_FATAL_FAILURE(await_pushes(pushes() + 1));
    ::usleep(random() % 2000);
    const std::uint32_t one = random() % kServers;
    ASSERT_TRUE(WIFSIGNALED(servers[one].end(SIGKILL)));
    servers[one] = served_.server(one);
    if (kill % 5 == 4) {
      ASSERT_TRUE(WIFSIGNALED(victim.end(SIGKILL)));
      ++number;
      victim = begin_victim();
    }
  }
  ASSERT_NO_FATAL_FAILURE(await_pushes(pushes() + 500));  // the log rings wrap
  shared_->stop = true;
  for (Child& client : pushing) EXPECT_EQ(client.end(), 0);
  EXPECT_EQ(victim.end(), 0);
  check_all();
  for (Child& server : servers) EXPECT_EQ(server.end(SIGTERM), 0);
}

TEST_F(KillsOfSeveral, ShardsMoveBetweenServersWhileClientsPush) {
  std::vector<Child> servers;
  for (std::uint32_t i = 0; i < 2; ++i) servers.push_back(served_.server(i));
  std::vector<std::uint32_t> server_of{0, 0, 0};
  served_.assign(server_of);
  std::vector<Child> pushing = clients();
  std::mt19937 random(4);
  for (int round = 0; round < 30; ++round) {
    ASSERT_NO_FATAL_FAILURE(await_pushes(pushes() + 1));
    const std::size_t shard = random() % kServers;
    server_of[shard] = 1 - server_of[shard];
    served_.assign(server_of);
    if (round % 2 == 0) {
      ASSERT_NO_FATAL_FAILURE(served_.await_server(shard, servers[server_of[shard]].pid()));
    }
  }
  served_.assign({1, 1, 1});  // server 0 leaves
  EXPECT_EQ(servers[0].end(SIGTERM), 0);
  ASSERT_NO_FATAL_FAILURE(await_pushes(pushes() + 100));
  shared_->stop = true;
  for (Child& client : pushing) EXPECT_EQ(client.end(), 0);
  check_all();
  EXPECT_EQ(servers[1].end(SIGTERM), 0);
}

// A server is killed while it takes a shard over, or while it gives one up.
TEST_F(KillsOfSeveral, ServersAreKilledWhileShardsMove) {
  std::vector<Child> servers;
  for (std::uint32_t i = 0; i < kServers; ++i) servers.push_back(served_.server(i));
  std::vector<std::uint32_t> server_of{0, 1, 2};
  std::vector<Child> pushing = clients();
  std::mt19937 random(6);
  for (int round = 0; round < 20; ++round) {
    ASSERT_NO_FATAL_FAILURE(await_pushes(pushes() + 1));
    const std::size_t shard = random() % kServers;
    const std::uint32_t from = server_of[shard];
    server_of[shard] = (from + 1 + random() % 2) % kServers;
    served_.assign(server_of);
    ::usleep(random() % 300);
    const std::uint32_t killed = round % 2 == 0 ? from : server_of[shard];
    ASSERT_TRUE(WIFSIGNALED(servers[killed].end(SIGKILL)));
    servers[killed] = served_.server(killed);
  }
  ASSERT_NO_FATAL_FAILURE(await_pushes(pushes() + 100));
  shared_->stop = true;
  for (Child& client : pushing) EXPECT_EQ(client.end(), 0);
  check_all();
  for (Child& server : servers) EXPECT_EQ(server.end(SIGTERM), 0);
}

TEST_F(KillsOfSeveral, PushesToTheOthersGoOnWhileOneIsDead) {
  std::vector<Child> servers;
  for (std::uint32_t i = 0; i < kServers; ++i) servers.push_back(served_.server(i));
  const auto client = served_.client(1);
  std::vector<Table> tables;  // of one range each, so each in another shard
  for (const char* const name : {"a", "b", "c"})
    tables.push_back(open(*client, {.name = name, .rows = 1, .dtype = Dtype::kInt64}));
  const auto push_one = [&](Table table) {
    const std::int64_t one = 1;
    const auto ticket = client->push(table, std::as_bytes(std::span(&one, 1)));
    EXPECT_TRUE(ticket.ok()) << ticket.status().to_string();
    return *ticket;
  };
  ASSERT_TRUE(WIFSIGNALED(servers[1].end(SIGKILL)));
  const Ticket held = push_one(tables[1]);
  for (int i = 0; i < 10; ++i) {
    for (const Table table : {tables[0], tables[2]})
      EXPECT_TRUE(client->wait(push_one(table), kLong).ok());
  }
  EXPECT_EQ(client->wait(held, 1ms).code(), base::Code::kDeadlineExceeded);
  servers[1] = served_.server(1);
  EXPECT_TRUE(client->wait(held, kLong).ok());
  EXPECT_EQ(pull<std::int64_t>(*client, tables[0]), std::vector<std::int64_t>{10});
  EXPECT_EQ(pull<std::int64_t>(*client, tables[1]), std::vector<std::int64_t>{1});
}

// The server that places tables dies at random moments: each table has one place for all clients.
TEST_F(KillsOfSeveral, ATableIsPlacedOnceThoughItsServerIsKilled) {
  std::vector<Child> servers;
  for (std::uint32_t i = 0; i < kServers; ++i) servers.push_back(served_.server(i));
  const auto open_all = [&](std::uint64_t number) {
    return Child([&, number] {
      const auto client = served_.attach(number);
      if (!client.ok()) return 1;
      for (int i = 0; i < 12; ++i) {
        const TableSpec spec{.name = "t" + std::to_string(i), .rows = 10, .dtype = Dtype::kInt64};
        if (const auto opened = (*client)->open(spec); !opened.ok()) {
          ::dprintf(2, "open: %s\n", opened.status().to_string().c_str());
          return 2;
        }
      }
      return 0;
    });
  };
  Child first = open_all(1), second = open_all(2);
  std::mt19937 random(5);
  for (int kill = 0; kill < 10; ++kill) {
    ::usleep(random() % 3000);
    ASSERT_TRUE(WIFSIGNALED(servers[0].end(SIGKILL)));
    servers[0] = served_.server(0);
  }
  EXPECT_EQ(first.end(), 0);
  EXPECT_EQ(second.end(), 0);
  const auto tables = tables_in(served_.map(0).store);
  ASSERT_TRUE(tables.ok());
  EXPECT_EQ(tables->size(), 12U);
  std::vector<int> placed(kServers);
  for (const PlacedTable& table : *tables) ++placed.at(table.shard_of.at(0));
  EXPECT_EQ(placed, std::vector<int>(kServers, 4));
  std::size_t ranges = 0;
  for (std::size_t shard = 0; shard < kServers; ++shard)
    ranges += ranges_in(served_.map(shard).store)->size();
  EXPECT_EQ(ranges, 12U);
}

// All processes end, then all come back: the memory alone has everything.
TEST_F(Kills, TablesOutliveAllProcesses) {
  for (int round = 0; round < 3; ++round) {
    const Child server = served_.server();
    shared_->stop = false;
    Child client([&] { return push_all(served_, 1, shared_->said[0], shared_->stop); });
    for (const base::TimePoint end = in(kLong); pushes() < 50U * (round + 1);) {
      ASSERT_LT(in(0ms), end);
      ::usleep(1000);
    }
    shared_->stop = true;
    ASSERT_EQ(client.end(), 0);
  }
  const Child server = served_.server();
  const auto client = served_.client(1);
  check(*client, open(*client, counts()), open(*client, dense()));
}

}  // namespace
}  // namespace regroup::collective::ps::testing::kills
