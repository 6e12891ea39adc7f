// Constructors of Status for Regroup's own sources, and macros that return early on a failure.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "regroup/status.h"

namespace regroup::base {

// "CALL(OBJECT): strerror(error)", with the code that fits the errno.
[[nodiscard]] Status system_error(std::string_view call, std::string_view object, int error);
// One constructor per code of Status.
[[nodiscard]] Status invalid_argument(std::string message);
[[nodiscard]] Status not_found(std::string message);
[[nodiscard]] Status revoked(std::string message);
[[nodiscard]] Status peer_lost(std::string message);
[[nodiscard]] Status deadline_exceeded(std::string message);
[[nodiscard]] Status resource_exhausted(std::string message);
[[nodiscard]] Status data_loss(std::string message);
[[nodiscard]] Status unavailable(std::string message);
[[nodiscard]] Status left(std::string message);
[[nodiscard]] Status internal_error(std::string message);

// Returns from the enclosing function when `expression` is a failed Status.
#define REGROUP_RETURN_IF_ERROR(expression)                                            \
  do {                                                                                 \
    if (::regroup::base::Status status_ = (expression); !status_.ok()) return status_; \
  } while (0)

// REGROUP_ASSIGN_OR_RETURN(auto value, f(x)) assigns the value of a Result, or returns its Status
// from the enclosing function. Expands to several statements: needs braces after `if`.
#define REGROUP_ASSIGN_OR_RETURN(target, ...) \
  REGROUP_ASSIGN_OR_RETURN_VIA(REGROUP_UNIQUE_NAME(result_, __LINE__), target, __VA_ARGS__)
#define REGROUP_ASSIGN_OR_RETURN_VIA(result, target, ...) \
  auto result = (__VA_ARGS__);                            \
  if (!result.ok()) return result.status();               \
  target = std::move(result).value()
#define REGROUP_UNIQUE_NAME(name, line) REGROUP_JOIN_NAMES(name, line)
#define REGROUP_JOIN_NAMES(name, line) name##line

}  // namespace regroup::base
