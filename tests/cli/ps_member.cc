// A worker of a job with a parameter server: counts until a file exists, then checks that no push
// of any worker is lost or counted twice. SIGTERM does not end it: it says so and counts on, as a
// worker that has pushes to flush. usage: ps_member FILE
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "regroup/ps.h"

namespace {

namespace ps = regroup::ps;

constexpr std::int64_t kKeys = 1000;
constexpr std::int64_t kKeysOfPush = 8;
constexpr std::int64_t kWorkers = kKeys, kPushes = kKeys + 1;  // ids of totals

void must(const regroup::base::Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, status.to_string().c_str());
  std::exit(3);
}

std::int64_t value(const ps::Client& client, ps::Table table, std::int64_t id) {
  std::int64_t out = 0;
  must(client.pull(table, std::span(&id, 1), std::as_writable_bytes(std::span(&out, 1))), "pull");
  return out;
}

void add(ps::Client& client, ps::Table table, std::int64_t id, std::int64_t number) {
  must(client.push(table, std::span(&id, 1), std::as_bytes(std::span(&number, 1))).status(),
       "push of a total");
  must(client.flush(), "flush of a total");
}

void note_term(int) {
  constexpr std::string_view kText = "told to end\n";
  static_cast<void>(!::write(STDOUT_FILENO, kText.data(), kText.size()));
}

}  // namespace

int main(int, char** argv) {
  std::signal(SIGTERM, note_term);
  auto joined = ps::join();
  must(joined.status(), "join");
  ps::Client& client = **joined;
  const auto opened = client.open(
      {.name = "counts", .kind = ps::TableKind::kHash, .dtype = regroup::Dtype::kInt64});
  must(opened.status(), "open");
  const ps::Table table = *opened;
  const std::vector<std::int64_t> ones(kKeysOfPush, 1);
  std::int64_t pushes = 0;
  for (; ::access(argv[1], F_OK) != 0; ++pushes) {
    std::array<std::int64_t, kKeysOfPush> ids;
    for (std::int64_t i = 0; i < kKeysOfPush; ++i)
      ids[static_cast<std::size_t>(i)] = (pushes * kKeysOfPush + i) % kKeys;
    must(client.push(table, ids, std::as_bytes(std::span(ones))).status(), "push");
    if (pushes % 16 == 0) must(client.flush(), "flush");
  }
  must(client.flush(), "flush");
  // The two ids may be in different ranges: who sees the second sees the first.
  add(client, table, kPushes, pushes);
  add(client, table, kWorkers, 1);
  const std::int64_t workers = std::atoll(std::getenv("WORLD_SIZE"));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (value(client, table, kWorkers) < workers) {
    if (std::chrono::steady_clock::now() > end) return std::puts("others do not end"), 4;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::int64_t counted = 0;
  for (std::int64_t id = 0; id < kKeys; ++id) counted += value(client, table, id);
  std::printf("pushed %lld, all %lld, counted %lld\n", static_cast<long long>(pushes),
              static_cast<long long>(value(client, table, kPushes)),
              static_cast<long long>(counted));
  return counted == kKeysOfPush * value(client, table, kPushes) ? 0 : 5;
}
