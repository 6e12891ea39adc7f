// Distributions of times, and how two series compare pair by pair.
#pragma once

#include <cstddef>
#include <vector>

namespace regroup::bench {

// All but `samples` in the unit of the samples.
struct Stats {
  double mean = 0;
  double min = 0;
  double p50 = 0;
  double p99 = 0;
  double max = 0;
  std::size_t samples = 0;
};

// The samples of one series, a block for each round.
using Blocks = std::vector<std::vector<double>>;

// Needs at least one sample. Percentiles are nearest-rank: the smallest sample such that at least
// q % of the samples are not larger.
[[nodiscard]] Stats summarize(const Blocks& blocks);
[[nodiscard]] double median(std::vector<double> values);
// The median over the rounds of median(a's block) / median(b's block): a disturbance that slows
// both in the same round cancels. `a` and `b` have the same number of rounds, at least one.
[[nodiscard]] double paired_ratio(const Blocks& a, const Blocks& b);

}  // namespace regroup::bench
