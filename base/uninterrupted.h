// System calls that a signal may interrupt.
#pragma once

#include <cerrno>

namespace regroup::base {

// Calls `call` again as long as a signal interrupts it: it returns a negative number and sets errno
// to EINTR. Returns its last result.
template <class Call>
auto uninterrupted(Call call) {
  auto out = call();
  while (out < 0 && errno == EINTR) out = call();
  return out;
}

}  // namespace regroup::base
