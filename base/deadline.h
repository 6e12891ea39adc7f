// The end of a wait.
#pragma once

#include "base/clock.h"

namespace regroup::base {

// `wait` after `now`, or the clock's last point if that is later than it: a caller may wait for
// Duration::max().
[[nodiscard]] constexpr TimePoint deadline_after(TimePoint now, Duration wait) {
  return wait < TimePoint::max() - now ? now + wait : TimePoint::max();
}

}  // namespace regroup::base
