// Processors, from hwloc.
#include "launcher/topo/read_topology.h"

#include <fmt/format.h>

#include <functional>

#include "launcher/topo/hwloc_library.h"

namespace regroup::launcher {
namespace {

core::Result<Topology> read(const std::string& what,
                            const std::function<int(const Hwloc&, hwloc_topology_t)>& prepare) {
  Topology out;
  const core::Status status = with_hwloc(what, HWLOC_TYPE_FILTER_KEEP_NONE, prepare,
                                         [&out](const Hwloc& hwloc, hwloc_topology_t from) {
                                           out = hwloc_processors(hwloc, from);
                                           return core::Status();
                                         });
  if (!status.ok()) return status;
  return out;
}

}  // namespace

core::Result<Topology> read_this_machine() {
  return read("this machine", [](const Hwloc&, hwloc_topology_t) { return 0; });
}

core::Result<Topology> parse_hwloc_xml(const std::string& text) {
  const std::string known = as_hwloc2_xml(text);
  auto out = read("this XML", [&known](const Hwloc& hwloc, hwloc_topology_t topology) {
    return hwloc.topology_set_xmlbuffer(topology, known.c_str(), static_cast<int>(known.size()) + 1);
  });
  if (out.ok()) out->this_machine = false;
  return out;
}

core::Result<Topology> synthetic_topology(const std::string& description) {
  return read(fmt::format("'{}'", description),
              [&description](const Hwloc& hwloc, hwloc_topology_t topology) {
                return hwloc.topology_set_synthetic(topology, description.c_str());
              });
}

}  // namespace regroup::launcher
