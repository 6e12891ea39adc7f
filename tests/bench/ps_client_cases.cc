// A client of the parameter server beside a bare loop over an array of its own: pushes through a
// lane until a server process has applied them, pulls from the store. 100 MB of float32 with SGD;
// 1M rows of 64 floats with row-wise Adagrad, batches of ids by Zipf's law. Both sides get the same
// data in turn and must end with the same bits. Prints "CASE<tab>NANOSECONDS" for each of COUNT.
//
// usage: ps_client_cases COUNT [ROWS [ELEMENTS]]
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "collective/ps/handover.h"
#include "collective/ps/server.h"
#include "collective/reduce/optimizer_kernels.h"
#include "regroup/ps.h"
#include "tests/bench/ps_cases.h"

namespace regroup::collective::ps {
namespace {

constexpr std::size_t kDim = 64, kBatch = 8192;
constexpr Scalars kScalars{.lr = 0.05};

// A server's process.
class Served {
 public:
  explicit Served(std::uint64_t bytes)
      : memory_(must(make_server_memory(
            {.segments = static_cast<std::uint32_t>(bytes / kSegmentBytes + 2)}))) {
    pid_ = ::fork();
    if (pid_ == 0) {
      auto server = Server::start(memory_.get(), std::chrono::seconds(60));
      _exit(server.ok() && (*server)->wait().ok() ? 0 : 1);
    }
    client = must(Client::attach({.memory = to_text(memory_.get()), .client = 1}));
  }
  ~Served() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  std::unique_ptr<Client> client;

 private:
  OwnedServerMemory memory_;
  pid_t pid_;
};

template <class T>
Input bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}
template <class T>
Output memory_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}
template <class T>
void check_equal(const std::vector<T>& ours, const std::vector<T>& bare, std::size_t count) {
  if (std::memcmp(ours.data(), bare.data(), count * sizeof(T)) != 0)
    fail("a pull of the client differs from the bare loop's");
}

// Runs `ours` and `bare` in turn, each first in every second round.
template <class Ours, class Bare>
void pair(int round, Ours ours, Bare bare) {
  for (const bool first : {round % 2 == 0, round % 2 != 0}) {
    if (first) {
      ours();
    } else {
      bare();
    }
  }
}

void run_dense(int count, std::size_t elements) {
  Served served(elements * sizeof(float) * 2);
  Client& client = *served.client;
  const Table table = must(
      client.open({.name = "dense", .rows = elements, .optimizer = {.kind = OptimizerKind::kSgd}}));
  const auto& kernels = reduce::best_optimizer_kernels();
  std::vector<float> gradients(elements), values(elements), ours(elements), bare(elements);
  std::mt19937 random(2);
  for (float& value : gradients) value = static_cast<float>(random() % 1000) / 1000;
  for (int i = -2; i < count; ++i) {
    const auto run_ours = [&] {
      must(client.push(table, bytes_of(gradients), kScalars));
      must(client.flush());
      must(client.pull(table, memory_of(ours)));
    };
    const auto run_bare = [&] {
      kernels.sgd(values.data(), gradients.data(), nullptr, elements,
                  {static_cast<float>(-kScalars.lr), 0, 1, 0, false, false});
      std::memcpy(bare.data(), values.data(), elements * sizeof(float));
    };
    if (i < 0) {
      run_ours();
      run_bare();
      check_equal(ours, bare, elements);
      continue;
    }
    pair(
        i, [&] { timed("dense, client", run_ours); }, [&] { timed("dense, bare", run_bare); });
    check_equal(ours, bare, elements);
  }
}

class Sparse {
 public:
  explicit Sparse(std::uint64_t rows)
      : rows_(rows), served_(rows * 340), values_(rows * kDim), sums_(rows) {
    table_ = must(served_.client->open({.name = "users",
                                        .kind = TableKind::kHash,
                                        .dim = kDim,
                                        .optimizer = {.kind = OptimizerKind::kRowAdagrad}}));
    for (std::uint64_t first = 0; first < rows; first += kBatch) {
      ids_.clear();
      for (std::uint64_t i = first; i < std::min(first + kBatch, rows); ++i)
        ids_.push_back(static_cast<std::int64_t>(i));
      draw_gradients();
      push();
      push_bare();
    }
  }
  // The next batch, of unique ids.
  void next() {
    ids_.clear();
    while (ids_.size() < kBatch) {
      if (const std::uint64_t id = zipf_(); id < rows_)
        ids_.push_back(static_cast<std::int64_t>(id));
    }
    std::ranges::sort(ids_);
    ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
    std::ranges::shuffle(ids_, random_);
    draw_gradients();
  }
  void push() {
    must(served_.client->push(table_, ids_, bytes_of(gradients_), kScalars));
    must(served_.client->flush());
  }
  void push_bare() {
    const auto& kernels = reduce::best_optimizer_kernels();
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      kernels.row_adagrad(values_.data() + ids_[i] * kDim, gradients_.data() + i * kDim,
                          &sums_[ids_[i]], kDim, {static_cast<float>(-kScalars.lr), 1e-8F});
    }
  }
  void pull() {
    ours_.resize(ids_.size() * kDim);
    must(served_.client->pull(table_, ids_, memory_of(ours_)));
  }
  void pull_bare() {
    bare_.resize(ids_.size() * kDim);
    for (std::size_t i = 0; i < ids_.size(); ++i)
      std::memcpy(bare_.data() + i * kDim, values_.data() + ids_[i] * kDim, kDim * sizeof(float));
  }
  void check() {
    pull();
    pull_bare();
    check_equal(ours_, bare_, ours_.size());
  }

 private:
  void draw_gradients() {
    gradients_.resize(ids_.size() * kDim);
    for (float& value : gradients_) value = gradient_(random_);
  }

  std::uint64_t rows_;
  Served served_;
  Table table_;
  std::vector<float> values_, sums_;  // of the bare loop
  std::vector<std::int64_t> ids_;
  std::vector<float> gradients_, ours_, bare_;
  Zipf zipf_;
  std::mt19937 random_{2};
  std::normal_distribution<float> gradient_;
};

void run_sparse(int count, std::uint64_t rows) {
  Sparse sparse(rows);
  for (int i = 0; i < count; ++i) {
    sparse.next();
    sparse.check();
    sparse.next();  // the caches hold the last batch for neither side
    pair(
        i,
        [&] {
          timed("pull, client", [&] { sparse.pull(); });
          timed("push, client", [&] { sparse.push(); });
        },
        [&] {
          timed("pull, bare", [&] { sparse.pull_bare(); });
          timed("push, bare", [&] { sparse.push_bare(); });
        });
  }
  sparse.check();
}

}  // namespace
}  // namespace regroup::collective::ps

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 0;
  const long rows = argc > 2 ? std::atol(argv[2]) : 1'000'000;
  const long elements = argc > 3 ? std::atol(argv[3]) : 25'000'000;
  if (count < 1 || rows < 1 || elements < 1) {
    fmt::print(stderr, "usage: ps_client_cases COUNT [ROWS [ELEMENTS]]\n");
    return 2;
  }
  regroup::collective::ps::run_dense(count, static_cast<std::size_t>(elements));
  regroup::collective::ps::run_sparse(count, static_cast<std::uint64_t>(rows));
  return 0;
}
