// A worker of a job with a parameter server in mode sync: trains tables with gradients that are a
// function of the step, the leaf and the tables, until STEPS are complete; prints a digest of all
// tables. usage: ps_sync_member STEPS [AT FILE]: at step AT it waits until FILE exists.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "regroup/ps.h"

namespace {

namespace ps = regroup::ps;

constexpr std::int64_t kLeaves = 6;
constexpr std::int64_t kIds = 200;
constexpr std::uint64_t kElements = 5000;
constexpr std::chrono::milliseconds kWork{1};  // of a leaf

template <class T>
T must(regroup::base::Result<T> result, const char* what) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "%s: %s\n", what, result.status().to_string().c_str());
  std::exit(3);
}
void must(const regroup::base::Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, status.to_string().c_str());
  std::exit(3);
}
void wait_for(const char* file) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (::access(file, F_OK) != 0) {
    if (std::chrono::steady_clock::now() > end) std::exit(4);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

struct Tables {
  ps::Table users, top;
};

void train(ps::Client& client, const Tables& tables, const ps::Leaf& leaf) {
  const auto seed = static_cast<std::int64_t>(leaf.step) * kLeaves + leaf.number;
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 20; ++i) ids.push_back((seed * 31 + i * 7) % kIds);
  std::vector<float> rows(ids.size() * 4);
  must(client.pull(tables.users, ids, std::as_writable_bytes(std::span(rows))), "pull");
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = rows[i] * 0.3F + static_cast<float>((seed + static_cast<std::int64_t>(i)) % 17) / 19;
  must(client.push(tables.users, ids, std::as_bytes(std::span(rows)), {.lr = 0.1}).status(),
       "push");
  std::vector<float> top(kElements);
  must(client.pull(tables.top, std::as_writable_bytes(std::span(top))), "pull");
  std::this_thread::sleep_for(kWork);
  for (std::size_t i = 0; i < top.size(); ++i)
    top[i] = top[i] * 0.1F + static_cast<float>((seed + static_cast<std::int64_t>(i)) % 13) / 11;
  must(client.push(tables.top, std::as_bytes(std::span(top)), {.lr = 0.01}).status(), "push");
}

// FNV-1a.
void add_to(std::uint64_t& digest, std::span<const std::byte> bytes) {
  for (const std::byte one : bytes)
    digest = (digest ^ static_cast<std::uint8_t>(one)) * 0x100000001b3ULL;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t steps = std::strtoull(argv[1], nullptr, 10);
  const std::uint64_t at = argc > 3 ? std::strtoull(argv[2], nullptr, 10) : steps;
  const auto client = must(ps::join({.mode = ps::Mode::kSync, .leaves = kLeaves}), "join");
  const Tables tables{must(client->open({.name = "users",
                                         .kind = ps::TableKind::kHash,
                                         .dim = 4,
                                         .init = {ps::InitialKind::kUniform, -1, 1},
                                         .optimizer = {.kind = ps::OptimizerKind::kLazyAdam}}),
                           "open"),
                      must(client->open({.name = "top",
                                         .rows = kElements,
                                         .init = {ps::InitialKind::kNormal, 0, 1},
                                         .optimizer = {.kind = ps::OptimizerKind::kAdam}}),
                           "open")};
  while (client->clock() < steps) {
    if (client->clock() >= at && argc > 3) wait_for(argv[3]);
    while (const auto leaf = must(client->next_leaf(), "next leaf")) train(*client, tables, *leaf);
  }
  std::uint64_t digest = 0xcbf29ce484222325ULL;
  std::vector<std::int64_t> ids(kIds);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> rows(ids.size() * 4), top(kElements);
  must(client->pull(tables.users, ids, std::as_writable_bytes(std::span(rows))), "pull");
  must(client->pull(tables.top, std::as_writable_bytes(std::span(top))), "pull");
  add_to(digest, std::as_bytes(std::span(rows)));
  add_to(digest, std::as_bytes(std::span(top)));
  std::printf("step %llu, digest %016llx\n", static_cast<unsigned long long>(client->clock()),
              static_cast<unsigned long long>(digest));
  return 0;
}
