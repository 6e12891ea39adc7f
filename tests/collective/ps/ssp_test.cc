// Modes of clients, and clients in mode ssp that try to break each of its promises. Each adds 1 to
// a row of its own in each turn, so that a pull shows how many turns of every client it has.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <numeric>
#include <random>

#include "collective/ps/consistency.h"
#include "tests/collective/ps/served.h"

namespace regroup::collective::ps::testing::ssp {
namespace {

using base::Code;
using std::chrono_literals::operator""ms;

constexpr Consistency kAsync{};
constexpr Consistency bounded(std::int64_t staleness) { return {Mode::kSsp, staleness}; }

TEST(PsConsistency, IsChecked) {
  const auto text = [](const Consistency& one) { return check(one).message(); };
  EXPECT_EQ(text(kAsync), "");
  EXPECT_EQ(text(bounded(0)), "");
  EXPECT_EQ(text(bounded(-1)), "staleness=-1: expected 0 to 1000000000 clocks");
  EXPECT_EQ(text({Mode::kAsync, 3}),
            "staleness=3: staleness is for mode=\"ssp\", got mode=\"async\"");
  EXPECT_EQ(text({Mode::kSsp, {}}), "mode=\"ssp\": expected a staleness, for example staleness=3");
  EXPECT_EQ(mode_of("bsp").status().message(),
            "mode \"bsp\": expected \"async\", \"ssp\" or \"sync\"");
  for (const Mode mode : {Mode::kAsync, Mode::kSsp, Mode::kSync})
    EXPECT_EQ(*mode_of(name_of(mode)), mode);
  for (const Consistency& one : {kAsync, bounded(0), bounded(1'000'000'000)})
    EXPECT_EQ(from_word(to_word(one)), one);
}

// ---- processes

constexpr std::chrono::seconds kShort{3};  // for a wait that must fail; others need less
constexpr std::size_t kElements = 300;
TableSpec turns() {  // of ranges in both shards
  return {.name = "turns", .kind = TableKind::kDirect, .rows = kElements, .dtype = Dtype::kInt64};
}

class PsSsp : public ::testing::Test {
 protected:
  [[nodiscard]] base::Result<std::unique_ptr<Client>> attach(
      std::uint64_t number, const Consistency& consistency,
      std::chrono::nanoseconds deadline = kLong) const {
    return Client::attach({.memory = to_text(served_.memory.get()),
                           .client = number,
                           .deadline = deadline,
                           .consistency = consistency,
                           .name = "worker " + std::to_string(number)});
  }
  [[nodiscard]] std::unique_ptr<Client> client(std::uint64_t number, const Consistency& consistency,
                                               std::chrono::nanoseconds deadline = kLong) const {
    auto made = attach(number, consistency, deadline);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? std::move(*made) : nullptr;
  }
  // A push that adds 1 to an element.
  static base::Result<Ticket> add(Client& client, Table table, std::size_t element) {
    const std::vector<std::int64_t> id{static_cast<std::int64_t>(element)}, one{1};
    return client.push(table, id, bytes_of(one));
  }
  static base::Status read(const Client& client, Table table, std::vector<std::int64_t>& out) {
    out.resize(kElements);
    std::vector<std::int64_t> ids(kElements);
    std::iota(ids.begin(), ids.end(), 0);
    return client.pull(table, ids, std::as_writable_bytes(std::span(out)));
  }

  // True once `fact` is; false, and a failure, if it never is.
  template <class Fact>
  static bool comes(const std::string& what, Fact fact) {
    for (const base::TimePoint end = in(kLong); !fact(); ::usleep(200)) {
      if (in(0ms) < end) continue;
      ADD_FAILURE() << "this does not come: " << what;
      return false;
    }
    return true;
  }
  // The lane of a client; nullptr: it has none.
  static Lane* lane_of(const MappedShard& shard, std::uint64_t client) {
    for (std::uint32_t i = 0; i < shard.lanes.spec().lanes; ++i) {
      if (shard.lanes.lane(i).client == client + 1) return &shard.lanes.lane(i);
    }
    return nullptr;
  }

  const Served served_;
};

TEST_F(PsSsp, ClocksOfTwoClientsDifferByTheStalenessAtMost) {
  const Child server = served_.server();
  for (const std::int64_t staleness : {0, 2}) {
    const auto number = static_cast<std::uint64_t>(10 * staleness);
    const auto slow = client(number + 2, bounded(staleness));
    static_cast<void>(open(*slow, turns()));  // the server has started
    const auto fast = client(number + 1, bounded(staleness), kShort);
    const Table table = open(*fast, turns());
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i <= staleness; ++i) {
      ASSERT_TRUE(read(*fast, table, values).ok()) << i;
      EXPECT_EQ(*fast->advance(), static_cast<std::uint64_t>(i + 1));
    }
    const base::Status held = read(*fast, table, values);
    EXPECT_EQ(held.code(), Code::kDeadlineExceeded);
    const std::string expected =
        fmt::format("pull of table turns at clock {}: worker {} (process {} on host ",
                    staleness + 1, number + 2, ::getpid());
    EXPECT_TRUE(held.message().starts_with(expected)) << held.message();
    EXPECT_NE(held.message().find(
                  fmt::format(" has clock 0; staleness={} needs clock 1 of it", staleness)),
              std::string::npos)
        << held.message();
    ASSERT_TRUE(slow->advance().ok());
    EXPECT_TRUE(read(*fast, table, values).ok());
  }
}

TEST_F(PsSsp, APullHasAllOwnPushesThatHaveBegun) {
  const Child server = served_.server();
  const auto one = client(1, bounded(3));
  const Table table = open(*one, turns());
  std::vector<std::int64_t> values;
  for (std::int64_t i = 1; i <= 200; ++i) {
    ASSERT_TRUE(add(*one, table, 1).ok());
    ASSERT_TRUE(read(*one, table, values).ok());
    ASSERT_EQ(values[1], i);
  }
}

TEST_F(PsSsp, AClockThatEndsHoldsUpNobody) {
  const Child server = served_.server();
  const MappedShard shard = served_.map(0);
  const auto one = client(1, bounded(0));
  auto other = client(2, bounded(0));
  const Table table = open(*one, turns());
  ASSERT_TRUE(one->advance().ok());
  server.stop();  // the client ends its clock itself
  const Lane& ended = *lane_of(shard, 2);
  std::thread pulling([&] {
    std::vector<std::int64_t> values;
    const base::Status status = read(*one, table, values);
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
  comes("the pull waits", [&] { return lane_of(shard, 1)->waits_for != 0; });
  EXPECT_EQ(ended.clock.load(), 1U);
  other.reset();
  EXPECT_EQ(ended.clock.load(), 0U);
  pulling.join();
}

TEST_F(PsSsp, AClientBeginsAtTheHighestClock) {
  const Child server = served_.server();
  const auto one = client(1, bounded(2)), two = client(2, bounded(2));
  static_cast<void>(open(*one, turns()));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(one->advance().ok());
  ASSERT_TRUE(two->advance().ok());
  EXPECT_EQ(client(3, bounded(2))->clock(), 5U);
}

// Two that begin together would see each other at clock 0, and perhaps nobody else.
TEST_F(PsSsp, AClientBeginsWhileNoOtherDoes) {
  const MappedShard first = served_.map(0), second = served_.map(1);
  pthread_mutex_t& of_first = first.lanes.header().attaching;
  pthread_mutex_t& of_second = second.lanes.header().attaching;
  ASSERT_TRUE(try_lock_robust(of_second));
  std::unique_ptr<Client> made;
  std::thread attaching([&] { made = client(1, bounded(0)); });
  comes("a lane in shard 0", [&] { return lane_of(first, 1) != nullptr; });
  comes("the mutex of shard 0", [&] { return try_lock_robust(of_first); });
  ::pthread_mutex_unlock(&of_second);
  comes("a lane in shard 1", [&] { return lane_of(second, 1) != nullptr; });
  ::usleep(50'000);
  EXPECT_EQ(lane_of(first, 1)->clock.load(), 0U);
  ::pthread_mutex_unlock(&of_first);
  attaching.join();
  EXPECT_EQ(lane_of(first, 1)->clock.load(), 1U);
}

TEST_F(PsSsp, ModesThatDifferAreRefusedWithBoth) {
  const Child server = served_.server();
  {
    const auto one = client(1, bounded(3));
    EXPECT_EQ(attach(2, kAsync).status().message(),
              "mode \"async\" here, \"ssp\" at worker 1; expected the same in all processes of the "
              "job");
    const auto other = attach(2, bounded(4));
    EXPECT_EQ(other.code(), Code::kInvalidArgument);
    EXPECT_EQ(other.status().message(),
              "staleness 4 here, 3 at worker 1; expected the same in all processes of the job");
    EXPECT_EQ(attach(2, bounded(-1)).code(), Code::kInvalidArgument);
    EXPECT_NE(client(2, bounded(3)), nullptr) << "a client that was refused has taken no lane";
  }
  const auto later = client(1, kAsync);  // nobody of the other mode is left
  EXPECT_EQ(later->clock(), 0U);
  EXPECT_EQ(*later->advance(), 1U) << "mode async counts, and waits for nobody";
}

TEST_F(PsSsp, AClockCountsOnceItsPushesAreApplied) {
  Child server = served_.server();
  const auto two = client(2, bounded(0));
  const Table same = open(*two, turns());
  const auto one = client(1, bounded(0), kShort);
  const Table table = open(*one, turns());
  server.stop();
  ASSERT_TRUE(add(*one, table, 1).ok());
  EXPECT_EQ(one->advance().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(one->clock(), 0U);
  server.signal(SIGCONT);
  base::Result<std::uint64_t> clock = one->advance();
  for (const base::TimePoint end = in(kLong); !clock.ok() && in(0ms) < end;) clock = one->advance();
  EXPECT_EQ(*clock, 1U);
  ASSERT_TRUE(two->advance().ok());
  std::vector<std::int64_t> values;
  ASSERT_TRUE(read(*two, same, values).ok());
  EXPECT_EQ(values[1], 1);
}

// What worker `element` says; it stays when its process is killed.
struct Said {
  std::atomic<bool> living;                     // false again before it is killed
  std::atomic<std::uint64_t> start, pulled_at;  // clocks
};
struct Shared {
  std::atomic<std::uint64_t> pulls;
  std::atomic<bool> stop;
  Said said[kElements];
};

class PsSspProcesses : public PsSsp {
 protected:
  PsSspProcesses() {
    void* const memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = new (memory) Shared();
  }
  ~PsSspProcesses() override { ::munmap(shared_, sizeof(Shared)); }
  PsSspProcesses(const PsSspProcesses&) = delete;
  PsSspProcesses& operator=(const PsSspProcesses&) = delete;

  struct Worker {
    Child process;
    std::size_t element;
  };
  // Worker `element` of mode ssp, once it has begun.
  Worker start(std::size_t element, std::int64_t staleness) {
    Worker out{Child([this, element, staleness] { return work(element, staleness); }), element};
    for (const base::TimePoint end = in(kLong); !shared_->said[element].living;) {
      EXPECT_LT(in(0ms), end) << "worker " << element << " does not begin";
      if (in(0ms) >= end) break;
      ::usleep(200);
    }
    return out;
  }
  void kill(Worker& worker) {
    shared_->said[worker.element].living = false;
    ASSERT_TRUE(WIFSIGNALED(worker.process.end(SIGKILL))) << "worker " << worker.element;
  }
  void await_more_pulls(std::uint64_t count) const {
    const std::uint64_t enough = shared_->pulls + count;
    for (const base::TimePoint end = in(kLong); shared_->pulls < enough;) {
      ASSERT_LT(in(0ms), end) << shared_->pulls << " pulls, expected " << enough;
      ::usleep(200);
    }
  }

  Shared* shared_;

 private:
  static int fail(int exit, const std::string& why) {
    ::dprintf(2, "%s\n", why.c_str());
    return exit;
  }
  [[nodiscard]] std::vector<std::size_t> others(std::size_t self) const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < kElements; ++i) {
      if (i != self && shared_->said[i].living) out.push_back(i);
    }
    return out;
  }
  // Pulls, checks, adds 1 to its element, counts. Returns 0 once it is told to stop.
  int work(std::size_t self, std::int64_t staleness) {
    const auto made = attach(self, bounded(staleness));
    if (!made.ok()) return fail(1, made.status().to_string());
    Client& client = **made;
    const auto table = client.open(turns());
    if (!table.ok()) return fail(2, table.status().to_string());
    const auto start = static_cast<std::int64_t>(client.clock());
    shared_->said[self].start = client.clock();
    shared_->said[self].living = true;
    for (const std::size_t other : others(self)) {
      const auto at = static_cast<std::int64_t>(shared_->said[other].pulled_at);
      if (at > start + staleness && shared_->said[other].living)
        return fail(
            3, fmt::format("{} begins at {}, and {} has pulled at {}", self, start, other, at));
    }
    std::mt19937 random(static_cast<unsigned>(self));
    std::vector<std::int64_t> values;
    while (!shared_->stop) {
      const auto clock = static_cast<std::int64_t>(client.clock());
      const std::vector<std::size_t> before = others(self);
      if (const base::Status status = read(client, *table, values); !status.ok())
        return fail(4, status.to_string());
      shared_->said[self].pulled_at = static_cast<std::uint64_t>(clock);
      if (values[self] != clock - start)
        return fail(5, fmt::format("{} own turns, expected {}", values[self], clock - start));
      for (const std::size_t other : before) {
        const auto begun = static_cast<std::int64_t>(shared_->said[other].start);
        const bool has_all = values[other] >= clock - staleness - begun;
        if (!has_all && shared_->said[other].living) {
          return fail(6, fmt::format("at clock {}: {} turns of {}, which began at {}", clock,
                                     values[other], other, begun));
        }
      }
      ++shared_->pulls;
      if (random() % 8 == 0) ::usleep(random() % 2000);
      const auto pushed = add(client, *table, self);
      if (!pushed.ok()) return fail(7, pushed.status().to_string());
      const auto counted = client.advance();
      if (!counted.ok()) return fail(8, counted.status().to_string());
    }
    return 0;
  }
};

// Servers and workers are killed, and workers join, at any moment.
TEST_F(PsSspProcesses, TheBoundHoldsWhateverIsKilled) {
  const int kills = std::getenv("REGROUP_TEST_FULL") != nullptr ? 400 : 12;
  for (const std::int64_t staleness : {0, 3}) {
    shared_ = new (shared_) Shared();
    Child server = served_.server();
    std::vector<Worker> workers;
    std::size_t next = static_cast<std::size_t>(staleness) * kElements / 6;
    for (int i = 0; i < 3; ++i) workers.push_back(start(next++, staleness));
    for (int kill_number = 0; kill_number < kills; ++kill_number) {
      await_more_pulls(20);
      if (kill_number % 3 != 0) {
        ASSERT_TRUE(WIFSIGNALED(server.end(SIGKILL)));
        server = served_.server();
      } else {
        Worker& victim = workers[static_cast<std::size_t>(kill_number) / 3 % workers.size()];
        kill(victim);
        victim = start(next++, staleness);
      }
    }
    await_more_pulls(50);
    shared_->stop = true;
    for (Worker& worker : workers) EXPECT_EQ(worker.process.end(), 0) << worker.element;
    EXPECT_EQ(server.end(SIGTERM), 0);
  }
}

// A stopped worker: the others go on for as many clocks as the staleness is, then wait for it by
// name; they go on once it is killed.
TEST_F(PsSspProcesses, AStoppedWorkerHoldsUpTheOthersUntilItIsKilled) {
  const Child server = served_.server();
  const MappedShard shard = served_.map(0);
  constexpr std::int64_t kStaleness = 2;
  std::vector<Worker> workers;
  for (std::size_t i = 0; i < 3; ++i) workers.push_back(start(i, kStaleness));
  await_more_pulls(30);
  Worker& stopped = workers[1];
  stopped.process.stop();
  const std::uint64_t last = lane_of(shard, 1)->clock + kStaleness + 1;
  const auto waits = [&](std::size_t worker) {
    const Lane& lane = *lane_of(shard, worker);
    const std::uint64_t other = lane.waits_for;
    return lane.clock == last && other != 0 &&
           shard.lanes.lane(static_cast<std::uint32_t>(other - 1)).client == 2;
  };
  ASSERT_TRUE(comes("the others wait for it", [&] { return waits(0) && waits(2); }));
  ::usleep(50'000);
  for (const std::size_t worker : {0, 2}) EXPECT_EQ(lane_of(shard, worker)->clock.load(), last);
  kill(stopped);
  await_more_pulls(30);
  stopped = start(3, kStaleness);
  await_more_pulls(30);
  shared_->stop = true;
  for (Worker& worker : workers) EXPECT_EQ(worker.process.end(), 0) << worker.element;
}

}  // namespace
}  // namespace regroup::collective::ps::testing::ssp
