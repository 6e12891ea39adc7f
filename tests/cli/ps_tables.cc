// A worker of a job with a parameter server: trains tables of all kinds with gradients that are a
// function of the step, so that one worker gives the same bits however the job is interrupted.
// usage: ps_tables FIRST END [FILE [END FILE]...]: steps FIRST to END - 1; prints a digest of all
// tables, then waits until FILE exists, and goes on to the next END. PS_DIM, PS_DTYPE=float64,
// PS_OPTIMIZER=sgd open table users otherwise.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "regroup/ps.h"

namespace {

namespace ps = regroup::ps;

constexpr std::int64_t kIds = 300;              // of users and tags
constexpr std::uint64_t kElements = 3'000'000;  // of top: three ranges

void must(const regroup::base::Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, status.to_string().c_str());
  std::exit(3);
}

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

ps::TableSpec users_spec() {
  ps::TableSpec out{.name = "users",
                    .kind = ps::TableKind::kHash,
                    .dim = 4,
                    .init = {ps::InitialKind::kUniform, -1, 1},
                    .optimizer = {.kind = ps::OptimizerKind::kLazyAdam}};
  if (!variable("PS_DIM").empty())
    out.dim = static_cast<std::uint32_t>(std::atoi(variable("PS_DIM").data()));
  if (variable("PS_DTYPE") == "float16") out.dtype = regroup::Dtype::kFloat16;
  if (variable("PS_OPTIMIZER") == "sgd") out.optimizer = {.kind = ps::OptimizerKind::kSgd};
  return out;
}

// FNV-1a.
void add_to(std::uint64_t& digest, std::span<const std::byte> bytes) {
  for (const std::byte one : bytes)
    digest = (digest ^ static_cast<std::uint8_t>(one)) * 0x100000001b3ULL;
}

struct Rows {
  ps::Table table;
  std::uint32_t dim;
};

void push_rows(ps::Client& client, const Rows& rows, std::int64_t step, std::int64_t stride) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 20; ++i) ids.push_back((step * stride + i * 7) % kIds);
  std::vector<float> gradients(ids.size() * rows.dim);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    gradients[i] = static_cast<float>((step * 31 + static_cast<std::int64_t>(i)) % 17 - 8) / 16;
  must(client.push(rows.table, ids, std::as_bytes(std::span(gradients)), {.lr = 0.125}).status(),
       "push");
}

}  // namespace

int main(int argc, char** argv) {
  auto joined = ps::join();
  must(joined.status(), "join");
  ps::Client& client = **joined;
  const ps::TableSpec spec = users_spec();
  auto opened = client.open(spec);
  must(opened.status(), "open");
  const Rows users{*opened, spec.dim};
  opened = client.open({.name = "tags",
                        .kind = ps::TableKind::kDirect,
                        .rows = 1000,
                        .dim = 3,
                        .dtype = regroup::Dtype::kFloat16,
                        .optimizer = {.kind = ps::OptimizerKind::kRowAdagrad}});
  must(opened.status(), "open");
  const Rows tags{*opened, 3};
  opened = client.open({.name = "top",
                        .rows = kElements,
                        .init = {ps::InitialKind::kNormal, 0, 1},
                        .optimizer = {.kind = ps::OptimizerKind::kAdam}});
  must(opened.status(), "open");
  const ps::Table top = *opened;
  opened = client.open({.name = "still", .rows = 10, .init = {ps::InitialKind::kNormal, 0, 1}});
  must(opened.status(), "open");
  const ps::Table still = *opened;

  std::vector<float> dense(kElements);
  const auto train = [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t step = first; step < end; ++step) {
      push_rows(client, users, step, 11);
      push_rows(client, tags, step, 13);
      if (step % 8 == 0) {
        for (std::size_t i = 0; i < dense.size(); ++i)
          dense[i] = static_cast<float>((static_cast<std::size_t>(step) + i) % 13) / 8;
        must(client.push(top, std::as_bytes(std::span(dense)), {.lr = 0.125}).status(), "push");
      }
      must(client.flush(), "flush");
    }
  };
  const auto print_digest = [&] {
    std::uint64_t digest = 0xcbf29ce484222325ULL;
    std::vector<std::int64_t> ids(kIds);
    std::iota(ids.begin(), ids.end(), 0);
    for (const Rows& rows : {users, tags}) {
      std::vector<std::byte> bytes(ids.size() * client.spec_of(rows.table).value_bytes());
      must(client.pull(rows.table, ids, bytes), "pull");
      add_to(digest, bytes);
    }
    must(client.pull(top, std::as_writable_bytes(std::span(dense))), "pull");
    add_to(digest, std::as_bytes(std::span(dense)));
    std::vector<float> initial(10);
    must(client.pull(still, std::as_writable_bytes(std::span(initial))), "pull");
    add_to(digest, std::as_bytes(std::span(initial)));
    std::printf("digest %016llx\n", static_cast<unsigned long long>(digest));
    std::fflush(stdout);
  };
  for (int at = 1; at + 1 < argc; at += 2) {
    train(std::atoll(argv[std::max(1, at - 1)]), std::atoll(argv[at + 1]));
    print_digest();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (argc > at + 2 && ::access(argv[at + 2], F_OK) != 0) {
      if (std::chrono::steady_clock::now() > end) return 4;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return 0;
}
