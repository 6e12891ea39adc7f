// hwloc's XML with its devices: PCI tree, GPUs, NICs, NVLinkBandwidth and XGMIBandwidth.
#pragma once

#include "base/status.h"
#include "launcher/topology/machine.h"
#include "launcher/topology/xml_input.h"

namespace regroup::topology {

// Converts hwloc's XML to a Machine. Call it in a separate process (read_in_child.h), since
// libhwloc trusts its XML and may crash on well-formed nonsense. kInvalidArgument, "FILE:LINE:
// ...": not hwloc's XML, a duplicate bus id, numbers out of bounds, a link that only one end lists.
// kUnavailable: there is no libhwloc.so.15.
[[nodiscard]] base::Result<Machine> read_hwloc_xml(const XmlInput& xml, const std::string& text);

}  // namespace regroup::topology
