// A member's timeline that survives SIGKILL: one line per moment, written at once. CLOCK_MONOTONIC
// nanoseconds.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace regroup::bench {

inline std::int64_t now_ns() { return base::SystemClock().now().time_since_epoch().count(); }

class Timeline {
 public:
  explicit Timeline(const std::string& dir)
      : fd_(::open(fmt::format("{}/timeline.{}", dir, ::getpid()).c_str(),
                   O_WRONLY | O_CREAT | O_APPEND, 0644)) {}

  // "at_ns what step generation size"; false if it could not be written.
  bool add(std::int64_t at, const char* what, std::uint64_t step, std::uint32_t generation,
           int size) const {
    const std::string line = fmt::format("{} {} {} {} {}\n", at, what, step, generation, size);
    return ::write(fd_, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  }

 private:
  int fd_;
};

}  // namespace regroup::bench
