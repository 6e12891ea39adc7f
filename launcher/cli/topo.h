// `regroup topo`.
#pragma once

#include <string>
#include <vector>

#include "launcher/spec/request.h"

namespace regroup::cli {

// Becomes the program regroup-topo with `words`. Returns an exit status if that cannot be.
[[nodiscard]] int run_topo(std::vector<std::string> words, const spec::Environment& environment);

}  // namespace regroup::cli
