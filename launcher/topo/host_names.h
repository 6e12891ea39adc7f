// Host lists as Slurm writes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace regroup::launcher {

inline constexpr std::size_t kMaxHosts = 200'000;

// "a,gpu[08-10,12],r[0-1]n[0-3]" in order; nothing if malformed (a bracket without its other, 3-1) or if it
// means more than `most` names.
[[nodiscard]] std::optional<std::vector<std::string>> expand_hosts(std::string_view text,
                                                                   std::size_t most = kMaxHosts);

}  // namespace regroup::launcher
