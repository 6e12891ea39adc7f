// Synthetic machines in a small language (docs/guide/topology.md), one thing per line.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/topology/machine.h"

namespace regroup::topology {

// `source` names the text in messages, which begin "SOURCE:LINE: ". kInvalidArgument: not
// understood, or a machine that cannot be (a name twice, a link to itself, more than the bounds of
// docs/guide/topology.md).
[[nodiscard]] base::Result<Machine> parse_machine_text(std::string_view text,
                                                       const std::string& source);

}  // namespace regroup::topology
