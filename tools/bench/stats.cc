// Percentiles and paired ratios.
#include "tools/bench/stats.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

namespace regroup::bench {
namespace {

double percentile(const std::vector<double>& ordered, double q) {
  const auto rank =
      static_cast<std::size_t>(std::ceil(q / 100 * static_cast<double>(ordered.size())));
  return ordered[std::max<std::size_t>(rank, 1) - 1];
}

}  // namespace

Stats summarize(const Blocks& blocks) {
  std::vector<double> all;
  for (const auto& block : blocks) all.insert(all.end(), block.begin(), block.end());
  assert(!all.empty());
  std::ranges::sort(all);
  const double sum = std::accumulate(all.begin(), all.end(), 0.0);
  return {sum / static_cast<double>(all.size()),
          all.front(),
          percentile(all, 50),
          percentile(all, 99),
          all.back(),
          all.size()};
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double paired_ratio(const Blocks& a, const Blocks& b) {
  assert(a.size() == b.size());
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(median(a[i]) / median(b[i]));
  return median(std::move(ratios));
}

}  // namespace regroup::bench
