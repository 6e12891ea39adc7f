// The key-value store through which the processes of a group find each other: a c10d::Store, for
// example.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace regroup::collective::group {

// Keys are written once. Used by one thread at a time.
class Store {
 public:
  virtual ~Store() = default;
  [[nodiscard]] virtual base::Status set(const std::string& key, const std::string& value) = 0;
  // Blocks until a process has set `key`. kDeadlineExceeded: none did before `deadline`.
  [[nodiscard]] virtual base::Result<std::string> get(const std::string& key,
                                                      base::TimePoint deadline) = 0;
};

}  // namespace regroup::collective::group
