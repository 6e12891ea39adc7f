// Servers that are killed with SIGKILL at random moments, by a timer of the kernel, while clients
// push through lanes in shared memory. Every push adds 1 to each of its keys, so the value of a key
// is the number of acknowledged pushes that name it, plus one for each push that is in doubt and
// was applied. Counted key by key, without a server, after each death; after the last recovery
// exactly. 20 kills; 2,000 with REGROUP_TEST_FULL.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <map>
#include <random>
#include <vector>

#include "shmem/doorbell.h"
#include "tests/collective/ps/small_store.h"

namespace regroup::collective::ps::testing::counting {
namespace {

using Bell = shmem::Doorbell<shmem::RealPolicy>;
using shmem::RealPolicy;

constexpr std::size_t kClients = 3, kKeysOfPush = 8, kDim = 4;
constexpr std::uint64_t kKeys = 700;  // more than a page of the index has

// One push at a time of one client: written by it, then `asked` is its number; read by the server,
// then `acknowledged` is.
struct Lane {
  Word asked, acknowledged;
  std::uint64_t previous;
  std::uint64_t positions[kKeysOfPush];
  std::int64_t ones[kKeysOfPush * kDim];
};
struct Lanes {
  Bell server, client;
  Lane lane[kClients];
};

base::TimePoint deadline() { return RealPolicy::now() + std::chrono::seconds(60); }

TableSpec counts() {
  return {.name = "counts", .kind = TableKind::kHash, .dim = kDim, .dtype = Dtype::kInt64};
}

// The server's process. Exits with a message's line number only if something is wrong.
struct Kill {
  enum class From { kStart, kService, kNever } from = From::kNever;
  long after_ns = 0;
};
[[noreturn]] void serve(const SmallStore& store, Lanes& lanes, Kill kill) {
  const auto must = [](bool good, int line) {
    if (!good) ::_exit(line % 200 + 1);
  };
  const StoreMemory memory = store.map(StoreMemory::Mode::kWrite);
  const auto arm = [&] {
    timer_t timer{};
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGKILL;
    const itimerspec at{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = kill.after_ns}};
    must(::timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, __LINE__);
    must(::timer_settime(timer, 0, &at, nullptr) == 0, __LINE__);
  };
  if (kill.from == Kill::From::kStart) arm();
  const auto lock = ShardLock::acquire(memory, deadline());
  must(lock.ok(), __LINE__);
  auto attached = Store::attach(memory);
  must(attached.ok(), __LINE__);
  Store& here = **attached;
  const auto opened = here.open_range(1, counts(), {0, ~0ULL});
  must(opened.ok(), __LINE__);
  Range& range = **opened;
  must(range.apply(range.newest()).ok(), __LINE__);
  here.release_log();
  if (kill.from == Kill::From::kService) arm();
  while (true) {
    bool found = false;
    for (std::size_t c = 0; c < kClients; ++c) {
      Lane& lane = lanes.lane[c];
      const std::uint64_t number = lane.asked.load(std::memory_order_seq_cst);
      if (number == lane.acknowledged.load(std::memory_order_relaxed)) continue;
      found = true;
      const auto appended = range.append({.client = c,
                                          .number = number,
                                          .previous = lane.previous,
                                          .positions = lane.positions,
                                          .gradients = std::as_bytes(std::span(lane.ones))});
      must(appended.ok() && appended->outcome <= Appended::Outcome::kDuplicate, __LINE__);
      must(range.apply(range.newest()).ok(), __LINE__);
      here.release_log();
      lane.acknowledged.store(number, std::memory_order_seq_cst);
      shmem::ring(lanes.client);
    }
    if (found) continue;
    const auto asked = [&] {
      return std::ranges::any_of(lanes.lane, [](const Lane& lane) {
        return lane.asked.load(std::memory_order_seq_cst) != lane.acknowledged.load();
      });
    };
    must(shmem::wait_until(lanes.server, asked, deadline()), __LINE__);
  }
}

class Counting {
 public:
  explicit Counting(unsigned seed) : random_(seed) {
    void* const shared =
        ::mmap(nullptr, sizeof(Lanes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    lanes_ = new (shared) Lanes();
  }
  ~Counting() {
    if (server_ > 0) kill_server(SIGKILL);
    ::munmap(lanes_, sizeof(Lanes));
  }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

  void start_server(Kill kill) {
    server_ = ::fork();
    ASSERT_GE(server_, 0);
    if (server_ == 0) serve(store_, *lanes_, kill);
  }
  int kill_server(int signal) {
    if (signal != 0) ::kill(server_, signal);
    int status = 0;
    ::waitpid(server_, &status, 0);
    server_ = 0;
    return status;
  }
  // True if the server has ended; `status` receives how.
  bool has_ended(int& status) {
    if (::waitpid(server_, &status, WNOHANG) != server_) return false;
    server_ = 0;
    return true;
  }

  // Takes acknowledgements and pushes anew; returns how many came.
  std::size_t pump(bool push) {
    std::size_t came = 0;
    for (std::size_t c = 0; c < kClients; ++c) {
      Lane& lane = lanes_->lane[c];
      if (busy(c)) continue;
      if (pushed_[c]) {
        ++came;
        for (const std::uint64_t position : lane.positions) ++acknowledged_[position];
        pushed_[c] = false;
      }
      if (!push) continue;
      lane.previous = lane.asked.load();
      std::vector<std::uint64_t> keys;
      while (keys.size() < kKeysOfPush) {
        const std::uint64_t position = mix64(random_() % kKeys);
        if (std::ranges::find(keys, position) == keys.end()) keys.push_back(position);
      }
      std::ranges::sort(keys);
      std::ranges::copy(keys, lane.positions);
      std::ranges::fill(lane.ones, 1);
      pushed_[c] = true;
      lane.asked.store(lane.previous + 1, std::memory_order_seq_cst);
      shmem::ring(lanes_->server);
    }
    return came;
  }
  // Waits until a client's push is acknowledged, or for at most a millisecond.
  void wait() {
    static_cast<void>(shmem::wait_until(
        lanes_->client, [&] { return !busy(0) || !busy(1) || !busy(2); },
        RealPolicy::now() + std::chrono::milliseconds(1)));
  }
  [[nodiscard]] bool idle() const { return !busy(0) && !busy(1) && !busy(2); }

  // Reads all keys without a server. What is in doubt may count, or not.
  void check() const {
    const StoreMemory memory = store_.map(StoreMemory::Mode::kRead);
    const auto headers = ranges_in(memory);
    ASSERT_TRUE(headers.ok());
    if (headers->empty()) {
      EXPECT_TRUE(acknowledged_.empty());
      return;
    }
    const auto reader = RangeReader::open(memory, *headers->front());
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    std::map<std::uint64_t, std::int64_t> doubt;
    for (std::size_t c = 0; c < kClients; ++c) {
      if (!pushed_[c]) continue;
      for (const std::uint64_t position : lanes_->lane[c].positions) ++doubt[position];
    }
    std::vector<std::uint64_t> positions;
    for (std::uint64_t key = 0; key < kKeys; ++key) positions.push_back(mix64(key));
    const auto values = values_of<std::int64_t>(*reader, positions);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const auto found = acknowledged_.find(positions[i]);
      const std::int64_t least = found == acknowledged_.end() ? 0 : found->second;
      const auto in_doubt = doubt.find(positions[i]);
      const std::int64_t most = least + (in_doubt == doubt.end() ? 0 : in_doubt->second);
      const std::int64_t value = values[i * kDim];
      ASSERT_TRUE(value >= least && value <= most)
          << "key " << i << ": expected " << least << " to " << most << ", got " << value;
      for (std::size_t e = 1; e < kDim; ++e) ASSERT_EQ(values[i * kDim + e], value) << "torn";
    }
  }

 private:
  [[nodiscard]] bool busy(std::size_t c) const {
    const Lane& lane = lanes_->lane[c];
    return lane.asked.load(std::memory_order_seq_cst) !=
           lane.acknowledged.load(std::memory_order_seq_cst);
  }

  SmallStore store_{1 << 20, 4, 64 << 10};
  Lanes* lanes_;
  std::mt19937 random_;
  pid_t server_ = 0;
  std::map<std::uint64_t, std::int64_t> acknowledged_;  // position -> pushes
  bool pushed_[kClients] = {};
};

TEST(PsCounting, NoPushIsLostOrDoubledHoweverOftenServersAreKilled) {
  const int kills = std::getenv("REGROUP_TEST_FULL") != nullptr ? 2000 : 20;
  Counting counting(1);
  std::mt19937 random(2);
  std::size_t pushes = 0;
  for (int kill = 0; kill < kills; ++kill) {
    // Some die about when they attach, others among pushes.
    if (kill % 2 == 0) {
      counting.start_server({Kill::From::kStart, 20'000 + static_cast<long>(random() % 500'000)});
    } else {
      counting.start_server({Kill::From::kService, 1 + static_cast<long>(random() % 2'000'000)});
    }
    int status = 0;
    for (const base::TimePoint end = deadline(); !counting.has_ended(status);) {
      ASSERT_LT(RealPolicy::now(), end) << "the server does not end";
      pushes += counting.pump(true);
      counting.wait();
    }
    pushes += counting.pump(false);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    counting.check();
    if (::testing::Test::HasFatalFailure()) FAIL() << "after kill " << kill;
  }
  counting.start_server({});
  // So many that the log ring wraps, and until all are acknowledged.
  for (const base::TimePoint end = deadline(); pushes < 500 || !counting.idle();) {
    ASSERT_LT(RealPolicy::now(), end) << pushes << " pushes";
    pushes += counting.pump(pushes < 500);
    counting.wait();
  }
  pushes += counting.pump(false);
  EXPECT_EQ(WTERMSIG(counting.kill_server(SIGKILL)), SIGKILL);
  counting.check();  // nothing is in doubt: exact
  RecordProperty("pushes", static_cast<int>(pushes));
}

}  // namespace
}  // namespace regroup::collective::ps::testing::counting
