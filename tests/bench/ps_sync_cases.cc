// Four clients of the parameter server in mode sync, one of which is always slow: steps of 16
// leaves, whose work is sleep, so that the number of cores does not decide: 2 ms for each leaf, and
// 8 ms at client 0. Simulations that cost nothing but the sleep: the same leaves on demand, and a
// fixed share of four for each client. All runs must end with the same bits. Prints
// "CASE<tab>NANOSECONDS" for STEPS steps, COUNT times.
//
// usage: ps_sync_cases COUNT [STEPS]
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "base/crc32c.h"
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
constexpr std::int64_t kLeaves = 16;
constexpr std::size_t kElements = 1000;
constexpr milliseconds kLookForBegin{1};

constexpr milliseconds work_of(std::size_t client) { return milliseconds(client == 0 ? 8 : 2); }

// A step whose leaves go to the client that is free first.
nanoseconds simulate_step() {
  std::array<nanoseconds, kClients> free{};
  for (std::int64_t leaf = 0; leaf < kLeaves; ++leaf) {
    const auto next = std::ranges::min_element(free);
    *next += work_of(static_cast<std::size_t>(next - free.begin()));
  }
  return *std::ranges::max_element(free);
}

struct Shared {
  std::atomic<std::uint32_t> ready;
  std::atomic<std::uint32_t> digest;  // of client 0, at the end
  std::atomic<bool> begins;
};

void work(const std::string& memory, std::size_t self, std::uint64_t steps, Shared& shared) {
  const auto client = must(Client::attach(
      {.memory = memory, .client = self, .consistency = {.mode = Mode::kSync, .leaves = kLeaves}}));
  const Table table = must(client->open({.name = "top",
                                         .rows = kElements,
                                         .init = {InitialKind::kUniform, -1, 1},
                                         .optimizer = {.kind = OptimizerKind::kAdam}}));
  std::vector<float> values(kElements);
  const auto bytes = std::as_writable_bytes(std::span(values));
  ++shared.ready;
  while (!shared.begins) std::this_thread::sleep_for(kLookForBegin);
  while (client->clock() < steps) {
    while (const auto leaf = must(client->next_leaf())) {
      must(client->pull(table, bytes));
      std::this_thread::sleep_for(work_of(self));
      for (float& value : values) value = value * 0.1F + static_cast<float>(leaf->number) / 7;
      must(client->push(table, bytes, {.lr = 0.01}).status());
    }
  }
  if (self != 0) return;
  must(client->pull(table, bytes));
  shared.digest = base::crc32c(bytes);
}

template <class Body>
pid_t begin_process(Body body) {
  std::fflush(stdout);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  body();
  _exit(0);
}

struct Result {
  nanoseconds spent;
  std::uint32_t digest;
};
// Runs all clients; the time is from their begin to the end of the last one.
Result run(std::uint64_t steps) {
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
    clients.push_back(begin_process([&] { work(text, i, steps, *shared); }));
  while (shared->ready < kClients) std::this_thread::sleep_for(kLookForBegin);
  const auto begin = Clock::now();
  shared->begins = true;
  bool good = true;
  for (const pid_t client : clients) {
    int status = 0;
    ::waitpid(client, &status, 0);
    good = good && status == 0;
  }
  const Result out{Clock::now() - begin, shared->digest};
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
  ::munmap(shared, sizeof(Shared));
  if (!good) fail("a client has failed");
  return out;
}

}  // namespace
}  // namespace regroup::collective::ps

int main(int argc, char** argv) {
  using namespace regroup::collective::ps;
  const int count = argc > 1 ? std::atoi(argv[1]) : 0;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 20;
  if (count < 1 || steps < 1) {
    fmt::print(stderr, "usage: ps_sync_cases COUNT [STEPS]\n");
    return 2;
  }
  std::uint32_t digest = 0;
  for (int round = 0; round < count; ++round) {
    const Result result = run(static_cast<std::uint64_t>(steps));
    if (round == 0) digest = result.digest;
    if (result.digest != digest) fail(fmt::format("run {} has other bits than the first", round));
    fmt::print("leaves on demand\t{}\n", result.spent.count());
    fmt::print("leaves on demand, simulated\t{}\n", steps * simulate_step().count());
    fmt::print("fixed shares, simulated\t{}\n",
               std::chrono::nanoseconds(steps * kLeaves / kClients * work_of(0)).count());
  }
  return 0;
}
