// hwloc's XML with its devices: PCI tree, GPUs, NICs, NVLinkBandwidth and XGMIBandwidth.
#pragma once

#include "base/status.h"
#include "launcher/topology/machine.h"
#include "launcher/topology/xml_input.h"

namespace regroup::topology {

// libhwloc trusts its XML: text that is well formed and means nonsense has been seen to crash it.
// So this is called in a process of its own (read_apart.h). kInvalidArgument, "FILE:LINE: ...": no
// such XML, a bus id twice, numbers beyond bounds, a link that one end only has. kUnavailable:
// there is no libhwloc.so.15.
[[nodiscard]] base::Result<Machine> read_hwloc_xml(const XmlInput& xml, const std::string& text);

}  // namespace regroup::topology
