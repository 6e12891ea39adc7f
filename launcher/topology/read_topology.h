// Reads the Topology of this machine, of a recorded one or of a synthetic one, by hwloc, which is
// loaded at run time in a separate process (read_in_child.h): a job that needs no topology does not
// pay for it, and a description on which libhwloc crashes gives an error.
#pragma once

#include <string>

#include "base/status.h"
#include "launcher/spec/request.h"
#include "launcher/topology/topology.h"

namespace regroup::topology {

// "this machine", or the variable that replaces it in hwloc: "HWLOC_XMLFILE=machine.xml".
[[nodiscard]] std::string machine_source(const spec::Environment& own);

// hwloc silently ignores some faulty variables and describes this machine instead: if a file or
// folder does not exist or is unreadable, or a synthetic description is malformed. Returns a
// sentence for each such variable, on one line; "": none.
[[nodiscard]] std::string passed_over_by_hwloc(const spec::Environment& own);

// Reads this machine, within the limits of its control groups, or the one that HWLOC_XMLFILE,
// HWLOC_SYNTHETIC and hwloc's other variables name. Takes about 2 ms. `source`: machine_source(),
// for errors. kUnavailable: there is no libhwloc.so.15. kInvalidArgument: hwloc failed or crashed.
[[nodiscard]] base::Result<Topology> read_this_machine(const std::string& source);

// Parses hwloc's XML (2.x, or 3.x as far as libhwloc 2 understands it). kInvalidArgument:
// malformed.
[[nodiscard]] base::Result<Topology> parse_hwloc_xml(const std::string& text);

// Parses hwloc's synthetic description, "package:2 [numa] l3:1 core:4 pu:2". kInvalidArgument:
// malformed.
[[nodiscard]] base::Result<Topology> synthetic_topology(const std::string& description);

}  // namespace regroup::topology
