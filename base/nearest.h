// "Did you mean": the candidate most like a mistyped word.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace regroup::base {

// The candidate most like `word`, "" if none is like it. The shortest candidate that begins with
// `word` (of at least four characters) is preferred. Else the one with the smallest edit distance
// counts, where a swap of two adjacent characters is one edit, and at most a third of all (rounded
// down) are edited.
[[nodiscard]] std::string nearest(std::string_view word,
                                  const std::vector<std::string>& candidates);

}  // namespace regroup::base
