// Helper programs that verbs of `regroup` execute.
#pragma once

#include <string>
#include <vector>

#include "launcher/spec/request.h"

namespace regroup::cli {

// Executes the program regroup-VERB with arguments `words`. If that fails it prints the reason on
// standard error and returns an exit status.
[[nodiscard]] int become_helper(const std::string& verb, std::vector<std::string> words,
                                const spec::Environment& environment);

}  // namespace regroup::cli
