// Runners take turns in a measurement: our operation in one kind of memory, a plain copy, a bare
// loop, a rival. Every rank calls all runners in the same order.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "tools/bench/job.h"
#include "tools/bench/operations.h"
#include "tools/bench/options.h"
#include "tools/bench/stats.h"

namespace regroup::bench {

// One block of timed iterations. No other block has the same data.
struct Turn {
  std::uint64_t first = 0;  // number of the first iteration
  std::uint32_t warmups = 0;
  std::uint32_t count = 1;
  bool last = false;  // the result of the last iteration is verified too
};

class Runner {
 public:
  explicit Runner(std::string name) : name_(std::move(name)) {}
  virtual ~Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Runs one iteration with its own data. Returns the number of wrong elements in all ranks.
  [[nodiscard]] virtual base::Result<std::uint64_t> verify(std::uint64_t iteration) = 0;
  // Returns the microseconds of each iteration, measured as OSU's benchmarks do: from the end of a
  // barrier to the end of the operation, the mean over the ranks. Only rank 0 is sure to get them;
  // others may get an empty vector.
  [[nodiscard]] virtual base::Result<std::vector<double>> time(const Turn& turn) = 0;

  [[nodiscard]] const std::string& name() const { return name_; }

  std::uint64_t wrong = 0;
  Blocks blocks;  // the results of time(); empty if verify() found wrong elements

 private:
  const std::string name_;
};

// A rank's memory of one kind, each buffer large enough for the case.
struct Buffers {
  collective::Output first;
  collective::Output second;
};

// Runs our operation.
[[nodiscard]] std::unique_ptr<Runner> make_operation_runner(Job& job, const Case& c,
                                                            const Buffers& buffers,
                                                            std::string name);
// Each rank copies `bytes` bytes from first to second past the cache.
[[nodiscard]] std::unique_ptr<Runner> make_copy_runner(Job& job, const Buffers& buffers,
                                                       std::size_t bytes);
// Sums float32 in the arena without any synchronisation: each rank adds its slice of all inputs and
// stores the sum past the cache. If an input fits into a cache line: each rank stores one line,
// waits for the lines of the others and adds them up, the least that an allreduce has to do.
[[nodiscard]] std::unique_ptr<Runner> make_bare_runner(Job& job, const Case& c);

// Verifies every runner; then the runners with correct results take turns for `rounds` rounds. Each
// round starts with another runner.
[[nodiscard]] base::Status alternate(const std::vector<std::unique_ptr<Runner>>& runners,
                                     std::uint32_t rounds, Turn turn);

}  // namespace regroup::bench
