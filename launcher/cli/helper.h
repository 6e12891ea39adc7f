// Helper programs that verbs of `regroup` execute.
#pragma once

#include <string>
#include <vector>

#include "launcher/spec/request.h"

namespace regroup::cli {

// Executes `program`, a path or a name to be found in PATH, with arguments `words`, its name first.
// Returns errno if that fails.
[[nodiscard]] int execute(const std::string& program, std::vector<std::string> words,
                          const spec::Environment& environment);

// Executes the program regroup-VERB with arguments `words`. If that fails it prints the reason on
// standard error and returns an exit status.
[[nodiscard]] int become_helper(const std::string& verb, std::vector<std::string> words,
                                const spec::Environment& environment);

}  // namespace regroup::cli
