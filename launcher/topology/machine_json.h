// A Machine as JSON, for the cache and for messages between hosts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launcher/topology/machine.h"

namespace regroup::topology {

// The keys in these texts whose values may have fractions.
inline constexpr std::string_view kRealOfMachine[] = {"gbits", "gbytes"};

// Encodes the machine with its processors, without its paths.
[[nodiscard]] std::string machine_to_json(const Machine& machine);

// Decodes a machine and finds its paths. kDataLoss: malformed, or an index is out of range.
[[nodiscard]] base::Result<Machine> machine_from_json(std::string_view text);

// The same for NICs. kDataLoss: malformed.
[[nodiscard]] std::string nics_to_json(const std::vector<Nic>& nics);
[[nodiscard]] base::Result<std::vector<Nic>> nics_from_json(std::string_view text);

}  // namespace regroup::topology
