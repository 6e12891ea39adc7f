// The rounding mode in which everything is reduced, whatever the thread's own.
#pragma once

#include <xmmintrin.h>

namespace regroup::collective {

// Round to nearest even, denormals kept, no traps: frameworks set flush-to-zero in threads as they like, and
// the bits must not depend on it.
class StandardArithmetic {
 public:
  StandardArithmetic() : before_(_mm_getcsr()) {
    if (differs()) _mm_setcsr(kDefault);
  }
  // Flags that the arithmetic raised stay raised: to look costs as much as a small reduction.
  ~StandardArithmetic() {
    if (differs()) _mm_setcsr(before_);
  }
  StandardArithmetic(const StandardArithmetic&) = delete;
  StandardArithmetic& operator=(const StandardArithmetic&) = delete;

 private:
  static constexpr unsigned kFlags = 0x3f;  // what happened; no setting
  static constexpr unsigned kDefault = 0x1f80;
  [[nodiscard]] bool differs() const { return (before_ & ~kFlags) != kDefault; }

  const unsigned before_;
};

}  // namespace regroup::collective
