// A Status as a Python exception: the classes are those of regroup/_errors.py.
#pragma once

#include <utility>

#include "base/status.h"

namespace regroup::python {

// Throws the exception that fits `status`, which is a failure. The GIL is held.
[[noreturn]] void raise(const base::Status& status);

inline void check(const base::Status& status) {
  if (!status.ok()) raise(status);
}

template <class T>
T value_of(base::Result<T> result) {
  if (!result.ok()) raise(result.status());
  return std::move(*result);
}

}  // namespace regroup::python
