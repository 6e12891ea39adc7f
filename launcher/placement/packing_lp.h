// A packing linear program: max sum(x), A x <= capacity, x >= 0, solved by column generation. A
// column is a user of the shared capacities, here a ring that uses links.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace regroup::placement {

struct Use {
  std::uint32_t row = 0;
  double amount = 0;  // capacity of the row that one unit of x uses
};

// A column improves the solution if its uses cost less than 1 by prices(). If no column does,
// value() is the optimum over all possible columns, added or not.
class PackingLp {
 public:
  // Capacities are positive.
  explicit PackingLp(std::vector<double> capacity);

  // Adds a column, in which each row occurs at most once, and solves again.
  void add(const std::vector<Use>& uses);

  [[nodiscard]] double value() const;
  // The price of each row, not negative.
  [[nodiscard]] const std::vector<double>& prices() const { return prices_; }
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
  std::vector<std::size_t> basis_;  // the basic variable of each row: kSlack, or a column
  std::vector<double> prices_;
};

}  // namespace regroup::placement
