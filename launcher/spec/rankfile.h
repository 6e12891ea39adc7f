// Rank files of Open MPI: which processors each rank gets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace regroup::spec {

struct RankPlace {
  std::uint32_t rank = 0;
  std::string host;
  std::optional<std::uint32_t> package;  // the numbers count the cores of this package
  std::vector<std::uint32_t> cpus;       // empty: all of the package
  bool operator==(const RankPlace&) const = default;
};

// "rank 0=host slot=0-2,4", "slot=1:0-1" (package 1), "slot=1:*". Ranks in the order of their
// numbers, which begin with 0 and have no gap. kInvalidArgument names file, line and field.
[[nodiscard]] base::Result<std::vector<RankPlace>> parse_rank_file(std::string_view text,
                                                                   std::string_view file);

}  // namespace regroup::spec
