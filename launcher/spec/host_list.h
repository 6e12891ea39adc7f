// Host lists as Slurm and Flux write them: "a,gpu[08-10,012],r[0-1]n[0-3]".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace regroup::spec {

inline constexpr std::size_t kMostHosts = 200'000;

// In order, zeroes kept, any number of brackets in a name; none for an empty text. kInvalidArgument
// names the word and what is wrong with it: a bracket without its other, a range that is reversed,
// no number, or more than `most` names, which are counted before they are written out.
[[nodiscard]] base::Result<std::vector<std::string>> expand_host_list(
    std::string_view text, std::size_t most = kMostHosts);

// "0-3,8" as numbers; the same errors.
[[nodiscard]] base::Result<std::vector<int>> expand_numbers(std::string_view text,
                                                            std::size_t most = 65536);

}  // namespace regroup::spec
