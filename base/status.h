// How our own functions make and pass on a Status.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "regroup/status.h"

namespace regroup::base {

// "CALL(OBJECT): strerror(error)", with the code that fits the errno.
[[nodiscard]] Status system_error(std::string_view call, std::string_view object, int error);
[[nodiscard]] Status invalid_argument(std::string message);
[[nodiscard]] Status deadline_exceeded(std::string message);
[[nodiscard]] Status internal_error(std::string message);

// Returns from the enclosing function when `expression` is a failed Status.
#define REGROUP_RETURN_IF_ERROR(expression)                                            \
  do {                                                                                 \
    if (::regroup::base::Status status_ = (expression); !status_.ok()) return status_; \
  } while (0)

}  // namespace regroup::base
