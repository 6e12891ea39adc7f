// What the coordinator does with a member that hangs: --on-hang.
#pragma once

#include <cstdint>

namespace regroup::proto {

enum class OnHang : std::uint8_t {
  kReport,   // it is named, and lives on
  kReplace,  // it is killed; a new member takes its place
  kDrop,     // it is killed; the job goes on with fewer members, down to its minimum
};

}  // namespace regroup::proto
