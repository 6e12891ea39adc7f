// The sides of a measurement, which take turns: our operation in one kind of memory, a plain copy,
// a bare loop, a rival. Every rank calls all runners in the same order.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "tools/bench/job.h"
#include "tools/bench/operations.h"
#include "tools/bench/options.h"
#include "tools/bench/stats.h"

namespace regroup::bench {

// A block of timed iterations. Their data differ from those of all other blocks.
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

  // Does it once with data of its own and counts the wrong elements in all ranks.
  [[nodiscard]] virtual base::Result<std::uint64_t> verify(std::uint64_t iteration) = 0;
  // Microseconds of each iteration by OSU's conventions: from after a barrier to the end of the
  // operation, mean over the ranks. Empty where this rank does not know them; rank 0 does.
  [[nodiscard]] virtual base::Result<std::vector<double>> time(const Turn& turn) = 0;

  [[nodiscard]] const std::string& name() const { return name_; }

  std::uint64_t wrong = 0;
  Blocks blocks;  // what time() gave; none unless all was right

 private:
  const std::string name_;
};

// A rank's memory of one kind, of at least the bytes that the case wants.
struct Buffers {
  collective::Output first;
  collective::Output second;
};

// Our operation.
[[nodiscard]] std::unique_ptr<Runner> make_operation_runner(Job& job, const Case& c,
                                                            const Buffers& buffers,
                                                            std::string name);
// Each rank copies `bytes` from first to second past the cache.
[[nodiscard]] std::unique_ptr<Runner> make_copy_runner(Job& job, const Buffers& buffers,
                                                       std::size_t bytes);
// A sum of float32 in the arena without any synchronisation: each rank adds its slice of all inputs
// and stores it past the cache. Of what fits into a cache line: each rank stores a line of its own,
// waits for those of the others and adds them up, the least that an all-reduce does.
[[nodiscard]] std::unique_ptr<Runner> make_bare_runner(Job& job, const Case& c);

// Verifies every runner; then those that are right take turns for `rounds` rounds, each of which
// another one begins.
[[nodiscard]] base::Status alternate(const std::vector<std::unique_ptr<Runner>>& runners,
                                     std::uint32_t rounds, Turn turn);

}  // namespace regroup::bench
