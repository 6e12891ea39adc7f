// Turns a Status into a Python exception of a class in regroup/_errors.py.
#pragma once

#include <utility>

#include "base/status.h"

namespace regroup::python {

// Throws the exception for `status`, which must not be OK. The caller holds the GIL.
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
