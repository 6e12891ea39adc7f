// The rounding mode in which everything is reduced, whatever the thread's own.
#pragma once

#include "core/cpu.h"

namespace regroup::collective {

// Round to nearest even, denormals kept, no traps: frameworks set flush-to-zero in threads as they like, and
// the bits must not depend on it.
class StandardArithmetic {
 public:
  StandardArithmetic() : before_(core::float_mode()) {
    if (differs()) core::set_float_mode(core::kStandardFloatMode);
  }
  // Flags that the arithmetic raised stay raised: to look costs as much as a small reduction.
  ~StandardArithmetic() {
    if (differs()) core::set_float_mode(before_);
  }
  StandardArithmetic(const StandardArithmetic&) = delete;
  StandardArithmetic& operator=(const StandardArithmetic&) = delete;

 private:
  [[nodiscard]] bool differs() const { return (before_ & ~core::kFloatFlags) != core::kStandardFloatMode; }

  const core::FloatMode before_;
};

}  // namespace regroup::collective
