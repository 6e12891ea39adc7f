// Counting on a parameter server whose server may be killed at any moment: each worker adds 1 to
// some keys, again and again; at the end every key has exactly what all workers have added.
//   regroup --role ps=1 --role worker=3 --ps-memory 64M ps_counting 3 2000
// usage: ps_counting WORKERS PUSHES
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "regroup/ps.h"

namespace {

namespace ps = regroup::ps;

constexpr std::size_t kKeys = 1000, kKeysOfPush = 10;

void must(const regroup::base::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "ps_counting: %s\n", status.to_string().c_str());
  std::exit(1);
}
template <class T>
T must(regroup::base::Result<T> result) {
  must(result.status());
  return std::move(*result);
}

std::vector<std::int64_t> pull_all(const ps::Client& client, ps::Table table) {
  std::vector<std::int64_t> ids(kKeys), values(kKeys);
  for (std::size_t i = 0; i < kKeys; ++i) ids[i] = static_cast<std::int64_t>(i);
  must(client.pull(table, ids, std::as_writable_bytes(std::span(values))));
  return values;
}

}  // namespace

int main(int argc, char** argv) {
  const long workers = argc > 2 ? std::atol(argv[1]) : 0,
             pushes = argc > 2 ? std::atol(argv[2]) : 0;
  if (workers < 1 || pushes < 1) {
    std::fprintf(stderr, "usage: ps_counting WORKERS PUSHES\n");
    return 2;
  }
  const auto client = must(ps::join());
  const auto kind = ps::TableKind::kHash;
  const auto dtype = regroup::collective::Dtype::kInt64;
  const ps::Table counts = must(client->open({.name = "counts", .kind = kind, .dtype = dtype}));
  const ps::Table ends = must(client->open({.name = "ends", .rows = 1, .dtype = dtype}));

  std::mt19937_64 random(std::random_device{}());
  const std::vector<std::int64_t> ones(kKeysOfPush, 1);
  for (long i = 0; i < pushes; ++i) {
    std::vector<std::int64_t> ids;  // unique ones: a run of keys
    const auto first = static_cast<std::int64_t>(random() % (kKeys - kKeysOfPush));
    for (std::size_t k = 0; k < kKeysOfPush; ++k)
      ids.push_back(first + static_cast<std::int64_t>(k));
    must(client->push(counts, ids, std::as_bytes(std::span(ones))));
  }
  must(client->flush());
  // All pushes of this worker are acknowledged. Wait until the others can say so, too.
  must(client->push(ends, std::as_bytes(std::span(ones).first(1))));
  must(client->flush());
  std::int64_t ended = 0;
  while (ended < workers) {
    must(client->pull(ends, std::as_writable_bytes(std::span(&ended, 1))));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::int64_t sum = 0;
  for (const std::int64_t value : pull_all(*client, counts)) sum += value;
  const std::int64_t wanted = workers * pushes * static_cast<std::int64_t>(kKeysOfPush);
  std::printf("ps_counting: counted %lld of %lld\n", static_cast<long long>(sum),
              static_cast<long long>(wanted));
  return sum == wanted ? 0 : 1;
}
