// The failure of a member's program, as the member reports it before it ends.
#pragma once

#include <cstdint>
#include <string>

#include "proto/world.h"

namespace regroup::proto {

// Member -> agent, on the session's connection or as the first message of another. The agent
// answers with a Reply: ok, or a sentence that the member prints instead of its report because
// another member of this host has already printed it. Agent -> coordinator: within MemberLost; also
// alone if `final`.
struct Failure {
  MemberId member = 0;
  std::string
      kind;  // "FileNotFoundError"; two members with equal kind and place failed in the same way
  std::string place;    // "train.py:6"
  std::string message;  // one line: "FileNotFoundError: [Errno 2] No such file or directory: 'log'"
  bool final = false;   // every member fails like this, now and later: the job must end
  std::uint64_t trace = 0;  // digest of all frames of the traceback; 0: not known
  [[nodiscard]] bool known() const { return !kind.empty(); }
  bool operator==(const Failure&) const = default;
};
// `kind` if the agent or the coordinator refused the member's Join; `message` is their reason.
inline constexpr const char* kRefusedKind = "refused";
// `kind` if the member could not read the checkpoint from which the job resumes.
inline constexpr const char* kUnreadableKind = "unreadable checkpoint";

}  // namespace regroup::proto
