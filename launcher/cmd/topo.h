// `regroup topo`.
#pragma once

#include <string>
#include <vector>

namespace regroup::cmd {

// Whether this command line asks for it; under the names of mpirun `topo` is a program like any other.
[[nodiscard]] bool is_topo(const std::string& program, const std::vector<std::string>& args);

// Becomes the program regroup-topo with `words`. Returns an exit status if that cannot be.
[[nodiscard]] int run_topo(std::vector<std::string> words);

}  // namespace regroup::cmd
