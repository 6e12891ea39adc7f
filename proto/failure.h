// The failure of a member's program, as the member reports it before it ends.
#pragma once

#include <cstdint>
#include <string>

#include "proto/world.h"

namespace regroup::proto {

// Member -> agent: the first message of a separate connection, or a message of the session's. The
// agent answers with a Reply: ok, or a sentence that the member prints instead of its report,
// because another member of this host has printed the same. Agent -> coordinator: in MemberLost, or
// alone if it is final.
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
// The kind of a failure whose Join was refused, in the words of the agent or the coordinator.
inline constexpr const char* kRefusedKind = "refused";
// The kind of a failure to read the checkpoint from which the job resumes.
inline constexpr const char* kUnreadableKind = "unreadable checkpoint";

}  // namespace regroup::proto
