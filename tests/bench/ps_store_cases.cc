// The parameter server's store beside a bare loop over an array: 1M rows of 64 floats, batches of
// ids by Zipf's law with exponent 1.05. Both sides get the same batches in turn and must end with
// the same bits. Prints "CASE<tab>NANOSECONDS" for each of COUNT batches.
//
// usage: ps_store_cases COUNT [ROWS]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "collective/ps/store.h"
#include "collective/reduce/optimizer_kernels.h"
#include "tests/bench/ps_cases.h"

namespace regroup::collective::ps {
namespace {

constexpr std::size_t kDim = 64, kRowBytes = kDim * sizeof(float), kBatch = 8192;
constexpr Scalars kScalars{.lr = 0.05};

struct Batch {
  std::vector<std::uint64_t> ids, positions;  // in the order of positions
  std::vector<float> gradients;
};

class Bench {
 public:
  explicit Bench(std::uint64_t rows) : rows_(rows) {
    spec_ = {.name = "users",
             .kind = TableKind::kHash,
             .dim = kDim,
             .optimizer = {.kind = OptimizerKind::kRowAdagrad}};
    constexpr std::uint32_t kMost = 64;
    segments_.push_back(must(make_segment(kSegmentBytes)));
    memory_ = must(StoreMemory::open(segments_[0].get(), kMost, StoreMemory::Mode::kWrite));
    must(format_store(memory_, {.job_seed = 1, .ring_bytes = 32 << 20, .most_segments = kMost}));
    store_ = must(Store::attach(memory_));
    std::uint32_t id = 0;
    for (const PositionRange& range : ranges_of(spec_, 1)) {
      ranges_.push_back(must(store_->open_range(id++, spec_, range)));
      readers_.push_back(must(ranges_.back()->reader()));
    }
    values_.resize(rows * kDim);
    sums_.resize(rows);
    for (std::uint64_t first = 0; first < rows; first += kBatch) {
      std::vector<std::uint64_t> ids;
      for (std::uint64_t i = first; i < std::min(first + kBatch, rows); ++i) ids.push_back(i);
      const Batch batch = batch_of(ids);
      push(batch);
      push_bare(batch);
    }
  }

  Batch next() {
    std::vector<std::uint64_t> ids;
    while (ids.size() < kBatch) {
      if (const std::uint64_t id = zipf_(); id < rows_) ids.push_back(id);
    }
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return batch_of(ids);
  }

  void pull(const Batch& batch, std::vector<float>& out) {
    auto bytes = std::as_writable_bytes(std::span(out));
    each_range(batch, [&](std::size_t range, std::size_t first, std::size_t count) {
      must(readers_[range].gather(std::span(batch.positions).subspan(first, count),
                                  bytes.subspan(first * kRowBytes, count * kRowBytes)));
    });
  }
  void pull_bare(const Batch& batch, std::vector<float>& out) {
    for (std::size_t i = 0; i < batch.ids.size(); ++i)
      std::memcpy(out.data() + i * kDim, values_.data() + batch.ids[i] * kDim, kRowBytes);
  }
  void push(const Batch& batch) {
    const auto bytes = std::as_bytes(std::span(batch.gradients));
    ++number_;
    each_range(batch, [&](std::size_t at, std::size_t first, std::size_t count) {
      Range& range = *ranges_[at];
      const Push push{.client = 1,
                      .number = number_,
                      .positions = std::span(batch.positions).subspan(first, count),
                      .gradients = bytes.subspan(first * kRowBytes, count * kRowBytes),
                      .scalars = kScalars};
      base::Result<Appended> appended = range.append(push);
      while (appended.code() == base::Code::kResourceExhausted) {
        grow();
        appended = range.append(push);
      }
      must(appended.status());
      base::Status applied = range.apply(appended->lsn);
      while (applied.code() == base::Code::kResourceExhausted) {
        grow();
        applied = range.apply(appended->lsn);
      }
      must(applied);
    });
    store_->release_log();
  }
  void push_bare(const Batch& batch) {
    const auto& kernels = reduce::best_optimizer_kernels();
    for (std::size_t i = 0; i < batch.ids.size(); ++i) {
      const std::uint64_t id = batch.ids[i];
      kernels.row_adagrad(values_.data() + id * kDim, batch.gradients.data() + i * kDim, &sums_[id],
                          kDim, {static_cast<float>(-kScalars.lr), 1e-8F});
    }
  }
  [[nodiscard]] double bytes_of_row() const {
    return static_cast<double>(memory_.bytes() - store_->free_bytes()) / static_cast<double>(rows_);
  }

 private:
  Batch batch_of(const std::vector<std::uint64_t>& ids) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> order;
    for (const std::uint64_t id : ids) order.emplace_back(mix64(id), id);
    std::ranges::sort(order);
    Batch batch;
    for (const auto& [position, id] : order) {
      batch.positions.push_back(position);
      batch.ids.push_back(id);
    }
    batch.gradients.resize(ids.size() * kDim);
    for (float& value : batch.gradients) value = gradient_(random_);
    return batch;
  }
  template <class Visit>
  void each_range(const Batch& batch, Visit visit) {
    for (std::size_t range = 0, first = 0; range < ranges_.size(); ++range) {
      std::size_t end = first;
      while (end < batch.positions.size() &&
             ranges_[range]->header().positions.has(batch.positions[end]))
        ++end;
      if (end > first) visit(range, first, end - first);
      first = end;
    }
  }
  void grow() {
    segments_.push_back(must(make_segment(kSegmentBytes)));
    must(memory_.add(segments_.back().get()));
  }

  std::uint64_t rows_;
  TableSpec spec_;
  std::vector<base::Fd> segments_;
  StoreMemory memory_;
  std::unique_ptr<Store> store_;
  std::vector<Range*> ranges_;
  std::vector<RangeReader> readers_;
  std::vector<float> values_, sums_;  // of the bare loop
  std::uint64_t number_ = 0;
  Zipf zipf_;
  std::mt19937 random_{2};
  std::normal_distribution<float> gradient_;
};

void run(int count, std::uint64_t rows) {
  Bench bench(rows);
  std::vector<float> ours(kBatch * kDim), bare(kBatch * kDim);
  const auto pull = [&](const Batch& batch) { bench.pull(batch, ours); };
  const auto pull_bare = [&](const Batch& batch) { bench.pull_bare(batch, bare); };
  for (int i = -3; i < count; ++i) {
    const Batch batch = bench.next();
    bench.push(batch);
    bench.push_bare(batch);
    pull(batch);
    pull_bare(batch);
    if (std::memcmp(ours.data(), bare.data(), batch.ids.size() * kRowBytes) != 0)
      fail("a pull of the store differs from the bare loop's");
    if (i < 0) continue;
    // The caches hold the last batch for neither side: each side begins a pair once.
    const Batch timed_batch = bench.next();
    for (const bool store : {i % 2 == 0, i % 2 != 0}) {
      if (store) {
        timed("pull, store", [&] { pull(timed_batch); });
        timed("push, store", [&] { bench.push(timed_batch); });
      } else {
        timed("pull, bare", [&] { pull_bare(timed_batch); });
        timed("push, bare", [&] { bench.push_bare(timed_batch); });
      }
    }
  }
  // Value and state are 260 bytes.
  fmt::print(stderr, "{:.1f} bytes a row, ring included\n", bench.bytes_of_row());
}

}  // namespace
}  // namespace regroup::collective::ps

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 0;
  const long rows = argc > 2 ? std::atol(argv[2]) : 1'000'000;
  if (count < 1 || rows < 1) {
    fmt::print(stderr, "usage: ps_store_cases COUNT [ROWS]\n");
    return 2;
  }
  regroup::collective::ps::run(count, static_cast<std::uint64_t>(rows));
  return 0;
}
