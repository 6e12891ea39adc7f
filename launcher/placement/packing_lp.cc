// The revised simplex method with a dense inverse, since there are only tens of rows and columns.
#include "launcher/placement/packing_lp.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace regroup::placement {
namespace {

constexpr std::size_t kSlack = SIZE_MAX;
constexpr double kTiny = 1e-10;
// Limit of iterations in one add(). The solution found by then is feasible, if not optimal.
constexpr std::size_t kMostPivots = 1000;

}  // namespace

PackingLp::PackingLp(std::vector<double> capacity)
    : rows_(capacity.size()),
      inverse_(rows_ * rows_, 0.0),
      amount_(std::move(capacity)),
      basis_(rows_, kSlack),
      prices_(rows_, 0.0) {
  for (std::size_t i = 0; i < rows_; ++i) inverse_[i * rows_ + i] = 1;
}

void PackingLp::add(const std::vector<Use>& uses) {
  columns_.push_back(uses);
  for (std::size_t pivots = 0; pivots < kMostPivots && improve();) ++pivots;
}

// Enters the variable with the greatest gain: a column that costs less than 1, or the slack of a
// row with a negative price.
bool PackingLp::improve() {
  std::size_t best = SIZE_MAX;
  double most = kTiny;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (const double gained = gain(columns_[i]); gained > most) most = gained, best = i;
  }
  bool slack = false;
  for (std::size_t row = 0; row < rows_; ++row) {
    if (-prices_[row] > most) most = -prices_[row], best = row, slack = true;
  }
  if (best == SIZE_MAX || !(slack ? enter({{static_cast<std::uint32_t>(best), 1}}, kSlack)
                                  : enter(columns_[best], best)))
    return false;
  reprice();
  return true;
}

double PackingLp::value() const {
  double out = 0;
  for (std::size_t i = 0; i < rows_; ++i) out += basis_[i] == kSlack ? 0 : amount_[i];
  return out;
}

std::vector<double> PackingLp::amounts() const {
  std::vector<double> out(columns_.size(), 0.0);
  for (std::size_t i = 0; i < rows_; ++i) {
    if (basis_[i] != kSlack) out[basis_[i]] = std::max(0.0, amount_[i]);
  }
  return out;
}

std::vector<double> PackingLp::in_basis(const std::vector<Use>& uses) const {
  std::vector<double> out(rows_, 0.0);
  for (std::size_t i = 0; i < rows_; ++i) {
    for (const Use& use : uses) out[i] += inverse_[i * rows_ + use.row] * use.amount;
  }
  return out;
}

double PackingLp::gain(const std::vector<Use>& uses) const {
  double out = 1;
  for (const Use& use : uses) out -= prices_[use.row] * use.amount;
  return out;
}

// False: the column uses no capacity, so that no variable leaves the basis.
bool PackingLp::enter(const std::vector<Use>& uses, std::size_t variable) {
  const std::vector<double> direction = in_basis(uses);
  std::size_t out = rows_;
  for (std::size_t i = 0; i < rows_; ++i) {
    if (direction[i] <= kTiny) continue;
    if (out == rows_ || amount_[i] * direction[out] < amount_[out] * direction[i]) out = i;
  }
  if (out == rows_) return false;
  const double pivot = direction[out];
  amount_[out] /= pivot;
  for (std::size_t j = 0; j < rows_; ++j) inverse_[out * rows_ + j] /= pivot;
  for (std::size_t i = 0; i < rows_; ++i) {
    if (i == out || direction[i] == 0) continue;
    amount_[i] -= direction[i] * amount_[out];
    for (std::size_t j = 0; j < rows_; ++j)
      inverse_[i * rows_ + j] -= direction[i] * inverse_[out * rows_ + j];
  }
  basis_[out] = variable;
  return true;
}

// Basic columns have value 1 each, slacks 0.
void PackingLp::reprice() {
  std::fill(prices_.begin(), prices_.end(), 0.0);
  for (std::size_t i = 0; i < rows_; ++i) {
    if (basis_[i] == kSlack) continue;
    for (std::size_t j = 0; j < rows_; ++j) prices_[j] += inverse_[i * rows_ + j];
  }
}

}  // namespace regroup::placement
