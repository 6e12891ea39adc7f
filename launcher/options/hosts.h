// Hosts as -H and host files name them, in the grammars of Open MPI, PRRTE and hydra.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace regroup::launcher {

struct HostRequest {
  std::string name;
  std::uint32_t slots = 0;      // 0: not said; as many as the host has cores
  std::uint32_t max_slots = 0;  // 0: not said; slots that may not be exceeded even when oversubscribing
  bool here = false;            // it is this machine
  std::string user = {};        // to log in there as; "": not said
  bool operator==(const HostRequest&) const = default;
};

// "a,b:4,a": each mention is one slot, :N is N; mentions add up. "b:*" are all it has, "user@b" says as whom
// it is reached. Each mention's name is added to `mentions`, if any. kInvalidArgument names the word.
[[nodiscard]] core::Result<std::vector<HostRequest>> parse_host_list(
    std::string_view text, std::vector<std::string>* mentions = nullptr);
// Adds one such mention to those before it: slots add up, unless one has all; the first user that is named
// counts.
void add_mention(std::vector<HostRequest>& hosts, const HostRequest& host);

// One host a line: "h", "h slots=2 max_slots=4 user=me", "h:4", "user@h"; "^h" excludes h; # begins a
// comment. A host without slots in two lines or more has one for each line. Each line's name is added to
// `mentions`, if any. kInvalidArgument names file, line and field.
[[nodiscard]] core::Result<std::vector<HostRequest>> parse_host_file(
    std::string_view text, std::string_view file, std::vector<std::string>* mentions = nullptr);

// Those of `listed` (a host file) that `wanted` (-H) names, with the slots of `wanted` where it says any
// beyond a mention; all of the other if one is empty. kInvalidArgument: a wanted host is not listed.
[[nodiscard]] core::Result<std::vector<HostRequest>> filter_hosts(const std::vector<HostRequest>& listed,
                                                                  const std::vector<HostRequest>& wanted);

}  // namespace regroup::launcher
