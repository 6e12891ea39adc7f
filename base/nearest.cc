// Edit distance with swaps of adjacent characters (optimal string alignment), three rows at a time.
#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace regroup::base {
namespace {

constexpr std::size_t kShortestBeginning = 4;

std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before;  // rows i - 2 and i - 1
  std::vector<std::size_t> last(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::size_t> row(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = std::exchange(last, std::move(row));
  }
  return last.back();
}

// The shortest candidate that begins with `word`; "": none.
std::string beginning_with(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  if (word.size() < kShortestBeginning) return best;
  for (const std::string& candidate : candidates) {
    if (candidate.starts_with(word) && (best.empty() || candidate.size() < best.size()))
      best = candidate;
  }
  return best;
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best = beginning_with(word, candidates);
  if (!best.empty()) return best;
  std::size_t fewest = word.size() / 3 + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t edits = distance(word, candidate);
    if (edits < fewest) fewest = edits, best = candidate;
  }
  return best;
}

}  // namespace regroup::base
