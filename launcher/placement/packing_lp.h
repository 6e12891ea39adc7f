// How much of several things fits into shared capacities: max sum(x), A x <= capacity, x >= 0.
// Columns come one by one, as they are found to be worth it (column generation).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace regroup::placement {

struct Use {
  std::uint32_t row = 0;
  double amount = 0;  // of the row's capacity, by one unit of x
};

// A thing is worth adding when what it uses costs less than 1 by prices(). When no thing does,
// value() is the optimum over all of them, whether they were added or not.
class PackingLp {
 public:
  // Capacities are positive.
  explicit PackingLp(std::vector<double> capacity);

  // `uses` names each row at most once. Solves again.
  void add(const std::vector<Use>& uses);

  [[nodiscard]] double value() const;
  [[nodiscard]] const std::vector<double>& prices() const {
    return prices_;
  }                                                   // of each row, not negative
  [[nodiscard]] std::vector<double> amounts() const;  // x, in the order of add()

 private:
  [[nodiscard]] std::vector<double> in_basis(const std::vector<Use>& uses) const;
  [[nodiscard]] double gain(const std::vector<Use>& uses) const;
  bool improve();
  bool enter(const std::vector<Use>& uses, std::size_t variable);
  void reprice();

  std::size_t rows_;
  std::vector<std::vector<Use>> columns_;
  std::vector<double> inverse_;     // of the basis, row by row
  std::vector<double> amount_;      // of each basic variable
  std::vector<std::size_t> basis_;  // by row: kSlack, or a column
  std::vector<double> prices_;
};

}  // namespace regroup::placement
