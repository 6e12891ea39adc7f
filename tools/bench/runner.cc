// The runners of our own ranks.
#include "tools/bench/runner.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/cpu.h"
#include "collective/reduce/kernels.h"
#include "collective/reduce/publish.h"
#include "collective/reduce/tree_fold.h"
#include "collective/shm/sync_points.h"
#include "tools/bench/start_barrier.h"
#include "tools/bench/verify.h"

namespace regroup::bench {
namespace {

using base::Result;
using base::Status;
using collective::Input;

constexpr std::uint64_t kVerifications = 2;
constexpr std::size_t kBlockBytes = 4096;

// Runs `prepare`, a common start and `body` for each iteration. Returns the mean times in all
// ranks.
template <class Prepare, class Body>
Result<std::vector<double>> timed(Job& job, const Turn& turn, const Prepare& prepare,
                                  const Body& body) {
  std::vector<std::uint64_t> mine;
  const base::TimePoint deadline = job.deadline();
  for (std::uint32_t i = 0; i < turn.warmups + turn.count; ++i) {
    prepare(turn.first + i);
    REGROUP_ASSIGN_OR_RETURN(const auto began, job.start_together());
    if (Status status = body(deadline); !status.ok()) return status;
    if (i >= turn.warmups) mine.push_back(start_clock() - began);
  }
  REGROUP_ASSIGN_OR_RETURN(auto all, job.share(mine));
  std::vector<double> out(turn.count);
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (const auto& of_rank : all) out[i] += static_cast<double>(of_rank[i]) / 1e3 / job.size();
  }
  return out;
}

collective::reduce::Kernels::Combine sum_of_float32() {
  return collective::reduce::kernels_of(collective::reduce::best_simd())
      .combine[static_cast<std::size_t>(collective::reduce::Accumulator::kFloat32)]
              [static_cast<std::size_t>(collective::Op::kSum)];
}

class OperationRunner final : public Runner {
 public:
  OperationRunner(Job& job, const Case& c, const Buffers& buffers, std::string name)
      : Runner(std::move(name)),
        job_(job),
        case_(c),
        call_(make_call(c, job.rank(), job.size(), buffers.first, buffers.second)),
        parts_(expected_parts(c, job.rank(), job.size())) {}

  Result<std::uint64_t> verify(std::uint64_t iteration) override {
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < kVerifications; ++i) {
      const bool apart = call_.input.data() + call_.input.size() <= call_.output.data() ||
                         call_.output.data() + call_.output.size() <= call_.input.data();
      if (apart) spoil(call_.output);
      fill(call_.input, case_, job_.rank(), iteration + i);
      REGROUP_RETURN_IF_ERROR(job_.barrier());
      REGROUP_RETURN_IF_ERROR(start(job_.deadline()));
      auto found = check(iteration + i);
      if (!found.ok()) return found;
      wrong += *found;
    }
    return wrong;
  }

  Result<std::vector<double>> time(const Turn& turn) override {
    const auto refill = [this](std::uint64_t iteration) {
      fill(call_.input, case_, job_.rank(), iteration);
    };
    auto out =
        timed(job_, turn, refill, [this](base::TimePoint deadline) { return start(deadline); });
    if (out.ok() && turn.last) {
      REGROUP_ASSIGN_OR_RETURN(auto found, check(turn.first + turn.warmups + turn.count - 1));
      wrong += found;
    }
    return out;
  }

 private:
  Status start(base::TimePoint deadline) {
    if (!call_.receive) return job_.communicator().run(call_.operation, deadline);
    REGROUP_ASSIGN_OR_RETURN(auto receive, job_.communicator().start(*call_.receive, deadline));
    REGROUP_ASSIGN_OR_RETURN(auto send, job_.communicator().start(call_.operation, deadline));
    REGROUP_RETURN_IF_ERROR(send.wait());
    return receive.wait();
  }
  Result<std::uint64_t> check(std::uint64_t iteration) {
    return job_.sum(count_wrong(call_.output, parts_, case_, job_.size(), iteration));
  }

  Job& job_;
  const Case case_;
  const Call call_;
  const std::vector<Part> parts_;
};

class CopyRunner final : public Runner {
 public:
  CopyRunner(Job& job, const Buffers& buffers, std::size_t bytes)
      : Runner("copy"),
        job_(job),
        from_(buffers.first.first(bytes)),
        to_(buffers.second.first(bytes)) {}

  Result<std::uint64_t> verify(std::uint64_t) override { return 0; }
  Result<std::vector<double>> time(const Turn& turn) override {
    return timed(
        job_, turn, [](std::uint64_t) {},
        [this](base::TimePoint) {
          collective::reduce::store_block(to_.data(), from_.data(), from_.size(),
                                          collective::reduce::Stores::kStream);
          collective::reduce::complete_stores();
          return Status();
        });
  }

 private:
  Job& job_;
  const Input from_;
  const collective::Output to_;
};

class BareRunner final : public Runner {
 public:
  BareRunner(Job& job, const Case& c)
      : Runner("bare"),
        job_(job),
        case_(c),
        mine_(collective::reduce::slice_of(c.block, job.rank(), job.size())),
        add_(sum_of_float32()) {}

  Result<std::uint64_t> verify(std::uint64_t iteration) override {
    fill(own(), case_, job_.rank(), iteration);
    REGROUP_RETURN_IF_ERROR(job_.barrier());
    add_slice();
    REGROUP_RETURN_IF_ERROR(job_.barrier());
    const Input whole = job_.arena().result(0).first(case_.block);
    return job_.sum(count_wrong(whole, expected_parts(case_, job_.rank(), job_.size()), case_,
                                job_.size(), iteration));
  }
  // The body ends without a barrier, so that one follows: no rank refills memory that another still
  // reads.
  Result<std::vector<double>> time(const Turn& turn) override {
    const auto refill = [this](std::uint64_t iteration) {
      static_cast<void>(job_.barrier().ok());  // the next barrier reports the error
      fill(own(), case_, job_.rank(), iteration);
    };
    return timed(job_, turn, refill, [this](base::TimePoint) { return add_slice(), Status(); });
  }

 private:
  [[nodiscard]] collective::Output own() const {
    return job_.arena().buffer(static_cast<proto::SlotIndex>(job_.rank()), 0).first(case_.block);
  }

  void add_slice() {
    alignas(64) std::array<std::byte, kBlockBytes> sum;
    std::byte* out = job_.arena().result(0).data();
    for (std::size_t at = mine_.begin; at < mine_.end; at += kBlockBytes) {
      const std::size_t bytes = std::min(kBlockBytes, mine_.end - at);
      const void* left = input(0, at);
      for (int r = 1; r < job_.size(); ++r, left = sum.data()) {
        add_(sum.data(), left, input(r, at), bytes / sizeof(float));
      }
      collective::reduce::store_block(out + at, static_cast<const std::byte*>(left), bytes,
                                      collective::reduce::Stores::kStream);
    }
    collective::reduce::complete_stores();
  }
  [[nodiscard]] const std::byte* input(int rank, std::size_t at) const {
    return job_.arena().buffer(static_cast<proto::SlotIndex>(rank), 0).data() + at;
  }

  Job& job_;
  const Case case_;
  const collective::reduce::ByteRange mine_;
  const collective::reduce::Kernels::Combine add_;
};

// A rank's cache line, in its buffer after the bytes that a small case uses.
struct alignas(64) ExchangeLine {
  std::array<std::byte, collective::shm::SyncPoints::kPayload> data;
  std::atomic<std::uint64_t> turn;
};
constexpr std::size_t kLineAt = 128;

class ExchangeRunner final : public Runner {
 public:
  ExchangeRunner(Job& job, const Case& c)
      : Runner("bare"),
        job_(job),
        case_(c),
        // A line still holds the last runner's turn: turns of different sizes never are equal.
        turn_(std::uint64_t{c.block} << 48),
        add_(sum_of_float32()) {
    for (int r = 0; r < job.size(); ++r) {
      std::byte* at = job.arena().buffer(static_cast<proto::SlotIndex>(r), 0).data() + kLineAt;
      lines_.push_back(reinterpret_cast<ExchangeLine*>(at));
    }
  }

  Result<std::uint64_t> verify(std::uint64_t iteration) override {
    refill(iteration);
    REGROUP_RETURN_IF_ERROR(job_.barrier());
    REGROUP_RETURN_IF_ERROR(exchange(job_.deadline()));
    return job_.sum(count_wrong(collective::Output(sum_).first(case_.block),
                                expected_parts(case_, job_.rank(), job_.size()), case_, job_.size(),
                                iteration));
  }
  Result<std::vector<double>> time(const Turn& turn) override {
    const auto fill_anew = [this](std::uint64_t iteration) { refill(iteration); };
    return timed(job_, turn, fill_anew,
                 [this](base::TimePoint deadline) { return exchange(deadline); });
  }

 private:
  void refill(std::uint64_t iteration) {
    fill(collective::Output(mine_).first(case_.block), case_, job_.rank(), iteration);
  }
  Status exchange(base::TimePoint deadline) {
    ++turn_;
    ExchangeLine& own = *lines_[static_cast<std::size_t>(job_.rank())];
    std::memcpy(own.data.data(), mine_.data(), case_.block);
    own.turn.store(turn_, std::memory_order_release);
    const void* left = lines_[0]->data.data();
    for (std::size_t r = 0; r < lines_.size(); ++r) {
      for (unsigned look = 1; lines_[r]->turn.load(std::memory_order_acquire) != turn_; ++look) {
        base::cpu_relax();
        if (look % 1024 != 0) continue;
        ::sched_yield();  // the other rank may need this core
        if (base::SystemClock().now() > deadline) return base::deadline_exceeded("bare exchange");
      }
      if (r > 0) add_(sum_.data(), left, lines_[r]->data.data(), case_.block / sizeof(float));
      if (r > 0) left = sum_.data();
    }
    return {};
  }

  Job& job_;
  const Case case_;
  std::uint64_t turn_;
  const collective::reduce::Kernels::Combine add_;
  std::vector<ExchangeLine*> lines_;  // by rank
  alignas(64) std::array<std::byte, 64> mine_{};
  alignas(64) std::array<std::byte, 64> sum_{};
};

}  // namespace

std::unique_ptr<Runner> make_operation_runner(Job& job, const Case& c, const Buffers& buffers,
                                              std::string name) {
  return std::make_unique<OperationRunner>(job, c, buffers, std::move(name));
}

std::unique_ptr<Runner> make_copy_runner(Job& job, const Buffers& buffers, std::size_t bytes) {
  return std::make_unique<CopyRunner>(job, buffers, bytes);
}

std::unique_ptr<Runner> make_bare_runner(Job& job, const Case& c) {
  if (c.block <= collective::shm::SyncPoints::kPayload)
    return std::make_unique<ExchangeRunner>(job, c);
  return std::make_unique<BareRunner>(job, c);
}

Status alternate(const std::vector<std::unique_ptr<Runner>>& runners, std::uint32_t rounds,
                 Turn turn) {
  for (const auto& runner : runners) {
    REGROUP_ASSIGN_OR_RETURN(runner->wrong, runner->verify(turn.first));
    turn.first += kVerifications;
  }
  for (std::uint32_t round = 0; round < rounds; ++round) {
    turn.last = round + 1 == rounds;
    for (std::size_t i = 0; i < runners.size(); ++i) {
      Runner& runner = *runners[(round + i) % runners.size()];
      if (runner.wrong > 0) continue;
      REGROUP_ASSIGN_OR_RETURN(auto block, runner.time(turn));
      if (!block.empty()) runner.blocks.push_back(std::move(block));
      turn.first += turn.warmups + turn.count;
    }
  }
  return {};
}

}  // namespace regroup::bench
