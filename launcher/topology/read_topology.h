// Where a Topology comes from: this machine, a recorded one or a synthetic one. All are read by
// hwloc, which is loaded at run time, in a process of its own (read_apart.h): a job that needs no
// topology does not pay for it, and one whose description libhwloc cannot digest gets an error.
#pragma once

#include <string>

#include "base/status.h"
#include "launcher/spec/request.h"
#include "launcher/topology/topology.h"

namespace regroup::topology {

// "this machine", or what the environment of this process puts in its place:
// "HWLOC_XMLFILE=machine.xml".
[[nodiscard]] std::string machine_source(const spec::Environment& own);

// What of that hwloc passes over without a word, describing this machine instead: a file or folder
// that is not there or that this user may not read, a synthetic description that it does not
// understand. A sentence for each, one line in all; empty: nothing.
[[nodiscard]] std::string passed_over_by_hwloc(const spec::Environment& own);

// This machine, as far as cgroups leave it to this process, or what HWLOC_XMLFILE, HWLOC_SYNTHETIC
// and hwloc's other variables put in its place. About 2 ms. `source`: machine_source(), for errors.
// kUnavailable: there is no libhwloc.so.15; kInvalidArgument: hwloc fails, or died of what it read.
[[nodiscard]] base::Result<Topology> read_this_machine(const std::string& source);

// An XML of hwloc (2.x, or 3.x as far as libhwloc 2 understands it). kInvalidArgument: it is none.
[[nodiscard]] base::Result<Topology> parse_hwloc_xml(const std::string& text);

// hwloc's words, as in "package:2 [numa] l3:1 core:4 pu:2". kInvalidArgument: not understood.
[[nodiscard]] base::Result<Topology> synthetic_topology(const std::string& description);

}  // namespace regroup::topology
