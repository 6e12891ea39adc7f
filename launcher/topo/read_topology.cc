// Processors, from hwloc.
#include "launcher/topo/read_topology.h"

#include <fmt/format.h>

#include <functional>

#include "launcher/alloc/text.h"
#include "launcher/topo/hwloc_library.h"
#include "launcher/topo/machine_json.h"
#include "launcher/topo/read_apart.h"

namespace regroup::launcher {
namespace {

core::Result<Topology> read(const std::string& what,
                            const std::function<int(const Hwloc&, hwloc_topology_t)>& prepare) {
  const auto text = read_apart(what, "libhwloc", [&]() -> core::Result<std::string> {
    Machine out;
    const core::Status status = with_hwloc(what, HWLOC_TYPE_FILTER_KEEP_NONE, prepare,
                                           [&out](const Hwloc& hwloc, hwloc_topology_t from) {
                                             out.processors = hwloc_processors(hwloc, from);
                                             return core::Status();
                                           });
    if (!status.ok()) return status;
    return machine_to_json(out);
  });
  if (!text.ok()) return text.status();
  auto machine = machine_from_json(*text);
  if (!machine.ok())
    return core::Status(machine.code(), fmt::format("{}: {}", what, machine.status().message()));
  return std::move(machine->processors);
}

}  // namespace

std::string machine_source(const Environment& own) {
  std::string out;
  for (const char* name : {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC", "HWLOC_FSROOT", "HWLOC_CPUID_PATH"}) {
    const auto found = own.find(name);
    if (found == own.end() || found->second.empty()) continue;
    out += fmt::format("{}{}={}", out.empty() ? "" : ", ", name, printable_word(found->second));
  }
  return out.empty() ? "this machine" : out;
}

core::Result<Topology> read_this_machine(const std::string& source) {
  return read(source, [](const Hwloc&, hwloc_topology_t) { return 0; });
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
