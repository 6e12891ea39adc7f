// Ranks that end without being in a World for which the others wait. docs/design/fixed_size_worlds.md. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/clock.h"
#include "elastic/launch.h"

namespace regroup::elastic {

class RankWatch {
 public:
  // `since`: the ranks were about to be started, or had been.
  RankWatch(std::uint32_t size, core::TimePoint since) : size_(size), since_(since) {}

  // Each second, say. `joined`: the ranks that wait. Why their World cannot form; nothing: it may.
  [[nodiscard]] std::optional<std::string> check(core::TimePoint now, const RankScan& seen,
                                                 const std::set<std::uint32_t>& joined);

 private:
  std::uint32_t size_;
  core::TimePoint since_;
  std::map<std::uint32_t, pid_t> known_;  // rank -> a process that it had
  std::set<std::uint32_t> missed_;        // had no process at the last look
};

}  // namespace regroup::elastic
