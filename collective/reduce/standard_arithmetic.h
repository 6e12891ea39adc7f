// Gives all reductions one rounding mode, whatever mode the calling thread has.
#pragma once

#include "base/cpu.h"

namespace regroup::collective::reduce {

// While it exists, the thread rounds to nearest even, keeps denormals and does not trap. Frameworks
// set flush-to-zero in threads at will, and the bits of a result must not depend on that.
class StandardArithmetic {
 public:
  StandardArithmetic() : before_(base::float_mode()) {
    if (differs()) base::set_float_mode(base::kStandardFloatMode);
  }
  // Exception flags stay raised: reading them costs as much as a small reduction.
  ~StandardArithmetic() {
    if (differs()) base::set_float_mode(before_);
  }
  StandardArithmetic(const StandardArithmetic&) = delete;
  StandardArithmetic& operator=(const StandardArithmetic&) = delete;

 private:
  [[nodiscard]] bool differs() const {
    return (before_ & ~base::kFloatFlags) != base::kStandardFloatMode;
  }

  const base::FloatMode before_;
};

}  // namespace regroup::collective::reduce
