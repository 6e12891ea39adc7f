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
  Kills() {
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
