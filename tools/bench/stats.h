// Distributions of times, and how two series compare pair by pair.
#pragma once

#include <cstddef>
#include <vector>

namespace regroup::bench {

// In the unit of the samples.
struct Stats {
  double mean = 0, min = 0, p50 = 0, p99 = 0, max = 0;
  std::size_t samples = 0;
};

// The samples of one series, a block for each round.
using Blocks = std::vector<std::vector<double>>;

// Of at least one sample. Percentiles are nearest-rank: the smallest sample with at least q % at or
// below it.
[[nodiscard]] Stats summarize(const Blocks& blocks);
[[nodiscard]] double median(std::vector<double> values);
// Median over the rounds of median(a's block) / median(b's block): what the machine did to both at
// one moment drops out. As many rounds of each; at least one.
[[nodiscard]] double paired_ratio(const Blocks& a, const Blocks& b);

}  // namespace regroup::bench
