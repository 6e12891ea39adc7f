// Detects ranks that end without join() while the others wait for them.
// docs/design/fixed_size_worlds.md. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "elastic/detected_launch.h"

namespace regroup::elastic {

class RankWatch {
 public:
  // `since`: a time at which the launcher had begun to start the ranks.
  RankWatch(std::uint32_t size, base::TimePoint since) : size_(size), since_(since) {}

  // Call about once a second. `joined`: the ranks that wait for the World. Returns why that cannot
  // form; empty: it still can.
  [[nodiscard]] std::optional<std::string> check(base::TimePoint now, const RankScan& seen,
                                                 const std::set<std::uint32_t>& joined);

 private:
  std::uint32_t size_;
  base::TimePoint since_;
  std::map<std::uint32_t, pid_t> known_;  // rank -> its last known process
  std::set<std::uint32_t> missed_;        // had no process at the last check
};

}  // namespace regroup::elastic
