// Four clients of the parameter server in mode ssp, whose work is sleep, so that the number of
// cores does not decide: 2 ms for each turn, and 10 ms more with a probability of 0.1. The same
// draws run with staleness 4, with 0, and in a simulation that costs nothing but the sleep. Each
// turn pulls, works, pushes and counts; every pull is checked. Prints "CASE<tab>NANOSECONDS" for
// TURNS turns of all clients, COUNT times.
//
// usage: ps_ssp_cases COUNT [TURNS]
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "collective/ps/handover.h"
#include "collective/ps/server.h"
#include "regroup/ps.h"
#include "tests/bench/ps_cases.h"

namespace regroup::collective::ps {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::size_t kClients = 4;
constexpr std::int64_t kBounds[] = {4, 0};
constexpr milliseconds kLookForBegin{1};

using Work = std::vector<std::array<nanoseconds, kClients>>;  // by turn

Work draw(unsigned seed, std::size_t turns) {
  std::mt19937 random(seed);
  std::bernoulli_distribution is_slow(0.1);
  Work out(turns);
  for (auto& turn : out) {
    for (nanoseconds& work : turn) work = milliseconds(is_slow(random) ? 12 : 2);
  }
  return out;
}

// The end of the last turn, if a turn of clock c begins once all clients have ended turn c - s - 1.
nanoseconds simulate(const Work& work, std::size_t staleness) {
  std::vector<nanoseconds> all_ended;  // turn c, by all clients
  std::array<nanoseconds, kClients> ended{};
  for (std::size_t clock = 0; clock < work.size(); ++clock) {
    const nanoseconds first =
        clock > staleness ? all_ended[clock - staleness - 1] : nanoseconds::zero();
    for (std::size_t i = 0; i < kClients; ++i)
      ended[i] = std::max(ended[i], first) + work[clock][i];
    all_ended.push_back(*std::ranges::max_element(ended));
  }
  return all_ended.back();
}

struct Shared {
  std::atomic<std::uint32_t> ready;
  std::atomic<bool> begins;
};

// A client's turns. Row i of the table is the number of turns that client i has ended.
void work(const std::string& memory, std::size_t self, std::int64_t staleness, const Work& turns,
          Shared& shared) {
  const auto client = must(
      Client::attach({.memory = memory, .client = self, .consistency = {Mode::kSsp, staleness}}));
  const Table table = must(client->open(
      {.name = "turns", .kind = TableKind::kDirect, .rows = kClients, .dtype = Dtype::kInt64}));
  std::vector<std::int64_t> ids(kClients), rows(kClients);
  std::iota(ids.begin(), ids.end(), 0);
  const std::int64_t id = ids[self], one = 1;
  ++shared.ready;
  while (!shared.begins) std::this_thread::sleep_for(kLookForBegin);
  for (std::size_t clock = 0; clock < turns.size(); ++clock) {
    must(client->pull(table, ids, std::as_writable_bytes(std::span(rows))));
    for (const std::int64_t row : rows) {
      if (row < static_cast<std::int64_t>(clock) - staleness)
        fail(fmt::format("a pull at clock {} has {} turns of a client", clock, row));
    }
    std::this_thread::sleep_for(turns[clock][self]);
    must(client->push(table, std::span(&id, 1), std::as_bytes(std::span(&one, 1))).status());
    must(client->advance().status());
  }
}

template <class Body>
pid_t begin_process(Body body) {
  std::fflush(stdout);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  body();
  _exit(0);
}

// Runs all clients; returns the time from their begin to the end of the last one.
nanoseconds run(std::int64_t staleness, const Work& turns) {
  const OwnedServerMemory memory = must(make_server_memory({}));
  const std::string text = to_text(memory.get());
  auto* const shared = new (::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared();
  const pid_t server = begin_process([&] {
    auto serving = must(Server::start(memory.get(), std::chrono::seconds(60)));
    must(serving->wait());
  });
  std::vector<pid_t> clients;
  for (std::size_t i = 0; i < kClients; ++i)
    clients.push_back(begin_process([&] { work(text, i, staleness, turns, *shared); }));
  while (shared->ready < kClients) std::this_thread::sleep_for(kLookForBegin);
  const auto begin = Clock::now();
  shared->begins = true;
  bool good = true;
  for (const pid_t client : clients) {
    int status = 0;
    ::waitpid(client, &status, 0);
    good = good && status == 0;
  }
  const nanoseconds spent = Clock::now() - begin;
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
  ::munmap(shared, sizeof(Shared));
  if (!good) fail("a client has failed");
  return spent;
}

}  // namespace
}  // namespace regroup::collective::ps

int main(int argc, char** argv) {
  using namespace regroup::collective::ps;
  const int count = argc > 1 ? std::atoi(argv[1]) : 0;
  const int turns = argc > 2 ? std::atoi(argv[2]) : 100;
  if (count < 1 || turns < 1) {
    fmt::print(stderr, "usage: ps_ssp_cases COUNT [TURNS]\n");
    return 2;
  }
  for (int round = 0; round < count; ++round) {
    const Work work = draw(static_cast<unsigned>(round), static_cast<std::size_t>(turns));
    for (int i = 0; i < 2; ++i) {
      const std::int64_t staleness = kBounds[(round + i) % 2];  // each is first in every second one
      fmt::print("staleness {}\t{}\n", staleness, run(staleness, work).count());
    }
    for (const std::int64_t staleness : kBounds) {
      fmt::print("staleness {}, simulated\t{}\n", staleness,
                 simulate(work, static_cast<std::size_t>(staleness)).count());
    }
    fmt::print("no bound, simulated\t{}\n",
               simulate(work, static_cast<std::size_t>(turns)).count());
  }
  return 0;
}
