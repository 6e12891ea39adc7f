// A worker of a job with a parameter server in mode ssp: in each turn it pulls, checks that its own
// pushes are there, pushes and counts, until a file exists. usage: ps_ssp_member FILE STALENESS
// [SECONDS], the deadline of a wait.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "regroup/ps.h"

namespace {

namespace ps = regroup::ps;

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

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t staleness = std::atoll(argv[2]);
  ps::Consistency mode{.mode = ps::Mode::kSsp, .staleness = staleness};
  if (staleness == -2) mode = {};  // mode async
  const std::chrono::seconds deadline(argc > 3 ? std::atoi(argv[3]) : 60);
  const auto client = must(ps::join(mode, deadline), "join");
  const ps::Table table =
      must(client->open(
               {.name = "turns", .kind = ps::TableKind::kHash, .dtype = regroup::Dtype::kInt64}),
           "open");
  const std::int64_t id = ::getpid(), one = 1;
  const std::uint64_t begin = client->clock();
  std::int64_t turns = 0;
  for (; ::access(argv[1], F_OK) != 0; ++turns) {
    std::int64_t mine = 0;
    must(client->pull(table, std::span(&id, 1), std::as_writable_bytes(std::span(&mine, 1))),
         "pull");
    if (mine != turns) return std::puts("own pushes are missing"), 4;
    must(client->push(table, std::span(&id, 1), std::as_bytes(std::span(&one, 1))).status(),
         "push");
    static_cast<void>(must(client->advance(), "advance"));
  }
  std::printf("began at %llu, %lld turns\n", static_cast<unsigned long long>(begin),
              static_cast<long long>(turns));
  return 0;
}
