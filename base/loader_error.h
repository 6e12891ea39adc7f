// Errors of dlopen() and dlsym().
#pragma once

#include <dlfcn.h>

#include <string>

namespace regroup::base {

// What dlerror() says about this thread's last failed call.
[[nodiscard]] inline std::string loader_error() {
  const char* text = ::dlerror();
  return text == nullptr ? "unknown error" : text;
}

}  // namespace regroup::base
