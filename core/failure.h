// How the program of a member failed, as it says so itself before it ends.
#pragma once

#include <cstdint>
#include <string>

#include "core/world.h"

namespace regroup::core {

// Member -> agent; the first message of a connection of its own, or one of the session's. The agent answers
// with a Reply: ok, or the sentence that the member prints in place of its report, which another member of
// this host has printed. Agent -> coordinator: in MemberLost, or alone if it is final.
struct Failure {
  MemberId member = 0;
  std::string kind;     // "FileNotFoundError"; two members with equal kind and place failed in the same way
  std::string place;    // "train.py:6"
  std::string message;  // one line: "FileNotFoundError: [Errno 2] No such file or directory: 'log'"
  bool final = false;   // every member fails in that way, now and later: the job is to end
  std::uint64_t trace = 0;  // digest of all frames of the traceback; 0: not known
  [[nodiscard]] bool known() const { return !kind.empty(); }
  bool operator==(const Failure&) const = default;
};
// The kind of one whose Join was refused, as its agent or the coordinator says it.
inline constexpr const char* kRefusedKind = "refused";
// Of one that cannot read the checkpoint that the job goes on from.
inline constexpr const char* kUnreadableKind = "unreadable checkpoint";

}  // namespace regroup::core
