// One update of a row, or of a run of elements of a dense tensor, by the table's optimizer.
// Formulas and bits are those of collective/reduce/optimizer_kernels.h on every processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/ps/table.h"

namespace regroup::collective::ps {

// The memory of an update. State words of element i are at states[0][i] and states[1][i], as far as
// the optimizer has them; row_adagrad has states[0][0] alone.
struct UpdateMemory {
  std::byte* values;  // `count` elements of the table's dtype, changed in place
  float* states[2];
  const std::byte* gradient;  // `count` elements of the compute dtype
  std::size_t count;
};

// A value; any thread. `spec` has passed check().
class Updater {
 public:
  explicit Updater(const TableSpec& spec);
  // Update number `number`, from 1, of this memory, with the scalars of a push that passed
  // check_push(). Computes 16-bit values in float32 and rounds them to nearest even. The same
  // arguments give the same bits in every process.
  void apply(const UpdateMemory& memory, std::uint64_t number, const Scalars& scalars) const;

 private:
  void apply_float(float* values, const UpdateMemory& memory, std::uint64_t number,
                   const Scalars& scalars) const;

  OptimizerSpec optimizer_;
  Dtype dtype_;
};

// x to the power of n, by squaring: the same bits everywhere, which libm does not promise.
[[nodiscard]] double power(double x, std::uint64_t n);

}  // namespace regroup::collective::ps
