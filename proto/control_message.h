// Messages between control commands (regroup status, resize, notice, kill-member) and the
// coordinator.
#pragma once

#include <cstdint>
#include <string>

#include "proto/world.h"

namespace regroup::proto {

// Control command <-> coordinator.
struct StatusRequest {
  bool operator==(const StatusRequest&) const = default;
};
struct StatusReply {
  std::string json;
  bool operator==(const StatusReply&) const = default;
};
struct ResizeRequest {
  std::uint32_t members = 0;
  bool operator==(const ResizeRequest&) const = default;
};
struct NoticeRequest {  // the member leaves at its next step boundary
  MemberId member = 0;
  bool operator==(const NoticeRequest&) const = default;
};
struct KillRequest {
  MemberId member = 0;
  bool operator==(const KillRequest&) const = default;
};
struct Reply {  // to each request but StatusRequest
  bool ok = true;
  std::string message;
  bool operator==(const Reply&) const = default;
};

}  // namespace regroup::proto
