// "Did you mean": the candidate most like a mistyped word.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace regroup::base {

// The candidate with the smallest edit distance from `word`; "" if that is more than a third of
// the word's length.
[[nodiscard]] std::string nearest(std::string_view word,
                                  const std::vector<std::string>& candidates);

}  // namespace regroup::base
