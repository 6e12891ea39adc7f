// Programs beside `regroup` that a verb of it becomes.
#pragma once

#include <string>
#include <vector>

#include "launcher/options/request.h"

namespace regroup::cmd {

// Becomes the program regroup-VERB with `words` behind its name. Returns an exit status, which has been
// explained on standard error, if that cannot be.
[[nodiscard]] int become_helper(const std::string& verb, std::vector<std::string> words,
                                const launcher::Environment& environment);

}  // namespace regroup::cmd
