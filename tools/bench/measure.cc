// Every rank makes the same plan of a run from the options.
#include "tools/bench/measure.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "base/memory_limit.h"
#include "base/status.h"
#include "collective/shm/sync_points.h"
#include "tools/bench/runner.h"

namespace regroup::bench {
namespace {

using base::Status;
using collective::Dtype;
using collective::Op;

constexpr std::size_t kLeastCopied = 4096;  // bytes: a smaller copy does not measure memory

// Bytes of the largest case.
std::size_t largest(const Options& options, int ranks) {
  std::size_t out = 0;
  for (const Dtype dtype : options.dtypes) {
    const OperationSpec& spec = *options.operation;
    out = std::max(out, spec.size(spec.block(options.max_bytes, ranks, dtype), ranks));
  }
  return out;
}

bool wants(const Options& options, Memory memory) {
  return std::ranges::find(options.memories, memory) != options.memories.end();
}

// Two buffers in this process's own memory.
class OrdinaryMemory {
 public:
  OrdinaryMemory() = default;
  ~OrdinaryMemory() {
    if (bytes_ > 0) ::munmap(base_, bytes_);
  }
  OrdinaryMemory(const OrdinaryMemory&) = delete;
  OrdinaryMemory& operator=(const OrdinaryMemory&) = delete;

  Status reserve(std::size_t bytes) {
    constexpr std::size_t kPage = 4096;
    each_ = (bytes + kPage - 1) / kPage * kPage + kPage;
    base_ = ::mmap(nullptr, 2 * each_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED)
      return base::system_error("mmap", fmt::format("{} bytes", 2 * each_), errno);
    bytes_ = 2 * each_;
    return {};
  }
  [[nodiscard]] Buffers buffers() const {
    auto* base = static_cast<std::byte*>(base_);
    return {{base, each_}, {base + each_, each_}};
  }

 private:
  void* base_ = nullptr;
  std::size_t each_ = 0, bytes_ = 0;
};

class Measurement {
 public:
  Measurement(Job& job, const Options& options, const std::vector<std::unique_ptr<Rival>>& rivals,
              const std::function<void(const SizeResult&)>& done)
      : job_(job), options_(options), rivals_(rivals), done_(done) {}

  Status run() {
    REGROUP_ASSIGN_OR_RETURN(rival_count_, job_.sum(rivals_.size()));
    if (wants(options_, Memory::kOrdinary)) {
      REGROUP_RETURN_IF_ERROR(ordinary_.reserve(largest(options_, job_.size())));
    }
    const std::vector<Op> ops = options_.operation->reduces ? options_.ops : std::vector{Op::kSum};
    for (const Dtype dtype : options_.dtypes) {
      for (const Op op : ops) {
        if (!can_reduce(op, dtype)) continue;
        REGROUP_RETURN_IF_ERROR(
            run_sizes({options_.operation, dtype, op, static_cast<int>(options_.root)}));
      }
    }
    return {};
  }

 private:
  Status run_sizes(Case c) {
    std::size_t before = ~std::size_t{0};
    for (const std::uint64_t asked : options_.sizes()) {
      c.block = c.spec->block(asked, job_.size(), c.dtype);
      const std::size_t size = c.spec->size(c.block, job_.size());
      if (size == std::exchange(before, size)) continue;  // rounds to the size before it
      REGROUP_RETURN_IF_ERROR(run_size(c, size));
    }
    return {};
  }

  [[nodiscard]] Buffers buffers(Memory memory) const {
    if (memory == Memory::kOrdinary) return ordinary_.buffers();
    const auto slot = static_cast<proto::SlotIndex>(job_.rank());
    return {job_.arena().buffer(slot, 0), job_.arena().buffer(slot, 1)};
  }
  // In the arena all ranks of an allreduce share one result.
  [[nodiscard]] Buffers buffers(Memory memory, const Case& c) const {
    Buffers out = buffers(memory);
    if (memory == Memory::kArena && c.spec->kind == collective::Kind::kAllreduce)
      out.second = job_.arena().result(0);
    return out;
  }

  Status run_size(const Case& c, std::size_t size) {
    std::vector<std::unique_ptr<Runner>> runners;
    SizeResult result{c, size, {}, {}, {}, {}};
    for (const Memory memory : options_.memories) {
      for (const bool in_place : {false, true}) {
        if (!(in_place ? c.spec->in_place : c.spec->out_of_place)) continue;
        Case placed = c;
        placed.in_place = in_place;
        runners.push_back(make_operation_runner(job_, placed, buffers(memory, c), ""));
      }
    }
    const std::size_t own = runners.size();
    if (size >= kLeastCopied)
      runners.push_back(make_copy_runner(job_, buffers(options_.memories.front()), size));
    const bool small = c.block <= collective::shm::SyncPoints::kPayload && job_.size() > 1;
    const bool bare = is_bare(c) && (small || size >= kLeastCopied);
    if (bare) runners.push_back(make_bare_runner(job_, c));
    const std::size_t first_rival = runners.size();
    for (std::size_t i = 0; i < rival_count_; ++i) {
      runners.push_back(
          std::make_unique<RivalRunner>(job_, job_.rank() == 0 ? rivals_[i].get() : nullptr, c));
    }
    const Turn turn{next_, options_.warmups_of(size), options_.iterations_of(size)};
    next_ += (turn.warmups + turn.count) * runners.size() * options_.rounds;
    REGROUP_RETURN_IF_ERROR(alternate(runners, options_.rounds, turn));

    const auto series = [&](std::size_t i) {
      return Series{runners[i]->wrong, std::move(runners[i]->blocks)};
    };
    std::size_t at = 0;
    for (const Memory memory : options_.memories) {
      Row row{memory, {}, {}};
      if (c.spec->out_of_place) row.out_of_place = series(at++);
      if (c.spec->in_place) row.in_place = series(at++);
      result.rows.push_back(std::move(row));
    }
    if (size >= kLeastCopied) result.copy = series(own);
    if (bare) result.bare = series(first_rival - 1);
    for (std::size_t i = first_rival; i < runners.size(); ++i) {
      const std::string& refusal = static_cast<const RivalRunner&>(*runners[i]).refusal();
      result.rivals.push_back({runners[i]->name(), refusal, series(i)});
    }
    if (job_.rank() == 0) done_(result);
    return {};
  }

  [[nodiscard]] bool is_bare(const Case& c) const {
    return c.spec->kind == collective::Kind::kAllreduce && c.dtype == Dtype::kFloat32 &&
           c.op == Op::kSum && wants(options_, Memory::kArena);
  }

  Job& job_;
  const Options& options_;
  const std::vector<std::unique_ptr<Rival>>& rivals_;
  const std::function<void(const SizeResult&)>& done_;
  std::size_t rival_count_ = 0;
  OrdinaryMemory ordinary_;
  std::uint64_t next_ = 0;  // iteration
};

}  // namespace

Room room_for(const Options& options, int ranks) {
  std::size_t words = 1;
  for (const std::uint64_t size : options.sizes())
    words = std::max<std::size_t>(words, options.iterations_of(size));
  return {wants(options, Memory::kArena) ? largest(options, ranks) : 0, words};
}

Status check_memory(const Options& options, int ranks) {
  if (!wants(options, Memory::kOrdinary)) return {};
  const std::uint64_t wanted = 2 * largest(options, ranks) * static_cast<std::uint64_t>(ranks);
  const auto limit = base::memory_limit();
  if (!limit.ok() || wanted <= limit->available) return {};
  return base::resource_exhausted(fmt::format(
      "{} ranks with buffers of {} bytes need {} bytes of ordinary memory, {} are available "
      "({}); use a smaller -e",
      ranks, wanted / 2 / static_cast<std::uint64_t>(ranks), wanted, limit->available,
      limit->source));
}

Status measure(Job& job, const Options& options, const std::vector<std::unique_ptr<Rival>>& rivals,
               const std::function<void(const SizeResult&)>& done) {
  return Measurement(job, options, rivals, done).run();
}

}  // namespace regroup::bench
