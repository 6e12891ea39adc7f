// `regroup place`: prints where ranks would go on a machine that is described by a file.
#pragma once

#include <string>
#include <vector>

namespace regroup::cli {

// The words after `place`; the exit status: 0, 1 where it cannot be (which has been said).
[[nodiscard]] int run_place(const std::vector<std::string>& words);

}  // namespace regroup::cli
