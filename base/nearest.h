// "Did you mean": the candidate most like a mistyped word.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace regroup::base {

// The candidate with the fewest edits from `word`; "" if none is near (more than a third of it
// differs).
[[nodiscard]] std::string nearest(std::string_view word,
                                  const std::vector<std::string>& candidates);

}  // namespace regroup::base
