// Where a Topology comes from: this machine, a recorded one or a synthetic one. All are read by hwloc, which
// is loaded at run time: a job that needs no topology does not pay for it.
#pragma once

#include <string>

#include "core/status.h"
#include "launcher/topo/topology.h"

namespace regroup::launcher {

// This machine, as far as cgroups leave it to this process, or what HWLOC_XMLFILE, HWLOC_SYNTHETIC and
// hwloc's other variables put in its place. About 1 ms. Sets HWLOC_PLUGINS_PATH in this process, so not
// beside other threads. kUnavailable: there is no libhwloc.so.15; kInvalidArgument: hwloc fails.
[[nodiscard]] core::Result<Topology> read_this_machine();

// An XML of hwloc (2.x, or 3.x as far as libhwloc 2 understands it). kInvalidArgument: it is none.
[[nodiscard]] core::Result<Topology> parse_hwloc_xml(const std::string& text);

// hwloc's words, as in "package:2 [numa] l3:1 core:4 pu:2". kInvalidArgument: not understood.
[[nodiscard]] core::Result<Topology> synthetic_topology(const std::string& description);

}  // namespace regroup::launcher
