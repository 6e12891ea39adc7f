// NCCL's topology XML (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE), that of RCCL too.
#pragma once

#include "base/status.h"
#include "launcher/topology/machine.h"
#include "launcher/topology/xml_input.h"

namespace regroup::topology {

// Complete or partial: what a product is known to have is filled in, with a sentence in
// Machine::guesses. kInvalidArgument, "FILE:LINE: ...": no such XML, a bus id twice, a link that
// one end only lists.
[[nodiscard]] base::Result<Machine> read_nccl_xml(const XmlInput& xml);

}  // namespace regroup::topology
