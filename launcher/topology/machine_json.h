// A Machine as JSON: kept for a boot, and sent from host to host.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launcher/topology/machine.h"

namespace regroup::topology {

// Members of these texts that are no whole numbers.
inline constexpr std::string_view kRealOfMachine[] = {"gbits", "gbytes"};

// With its processors, without paths.
[[nodiscard]] std::string machine_to_json(const Machine& machine);

// Paths are found anew. kDataLoss: it is not such a text, or says of things that are not there.
[[nodiscard]] base::Result<Machine> machine_from_json(std::string_view text);

// kDataLoss: it is not such a text.
[[nodiscard]] std::string nics_to_json(const std::vector<Nic>& nics);
[[nodiscard]] base::Result<std::vector<Nic>> nics_from_json(std::string_view text);

}  // namespace regroup::topology
