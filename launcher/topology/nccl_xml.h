// NCCL's topology XML (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE), also RCCL's.
#pragma once

#include "base/status.h"
#include "launcher/topology/machine.h"
#include "launcher/topology/xml_input.h"

namespace regroup::topology {

// Converts the XML, complete or partial, to a Machine. Fills in missing properties of known
// products, with a sentence in Machine::guesses. kInvalidArgument, "FILE:LINE: ...": not NCCL's
// XML, a duplicate bus id, a link that only one end lists.
[[nodiscard]] base::Result<Machine> read_nccl_xml(const XmlInput& xml);

}  // namespace regroup::topology
