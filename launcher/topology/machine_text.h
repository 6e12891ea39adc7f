// Synthetic machines in a small language (docs/guide/topology.md), one object per line.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/topology/machine.h"

namespace regroup::topology {

// Parses `text`. kInvalidArgument, "SOURCE:LINE: ...": a syntax error, or an impossible machine (a
// duplicate name, a link from a node to itself, sizes beyond the bounds of docs/guide/topology.md).
[[nodiscard]] base::Result<Machine> parse_machine_text(std::string_view text,
                                                       const std::string& source);

}  // namespace regroup::topology
