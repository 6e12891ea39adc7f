// Processors, from hwloc.
#include "launcher/topology/read_topology.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include "base/fd.h"
#include "base/text.h"
#include "launcher/topology/hwloc_library.h"
#include "launcher/topology/machine_json.h"
#include "launcher/topology/read_in_child.h"

namespace regroup::topology {
namespace {

base::Result<Topology> read(const std::string& what,
                            const std::function<int(const Hwloc&, hwloc_topology_t)>& prepare) {
  const auto text = read_in_child(what, "libhwloc", [&]() -> base::Result<std::string> {
    Machine out;
    const base::Status status = with_hwloc(what, HWLOC_TYPE_FILTER_KEEP_NONE, prepare,
                                           [&out](const Hwloc& hwloc, hwloc_topology_t from) {
                                             out.processors = hwloc_processors(hwloc, from);
                                             return base::Status();
                                           });
    if (!status.ok()) return status;
    return machine_to_json(out);
  });
  if (!text.ok()) return text.status();
  auto machine = machine_from_json(*text);
  if (!machine.ok())
    return base::Status(machine.code(), fmt::format("{}: {}", what, machine.status().message()));
  return std::move(machine->processors);
}

std::string value_of(const spec::Environment& own, const char* name) {
  const auto found = own.find(name);
  return found == own.end() ? "" : found->second;
}

}  // namespace

std::string machine_source(const spec::Environment& own) {
  std::string out;
  for (const char* name : {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC", "HWLOC_FSROOT", "HWLOC_CPUID_PATH",
                           "HWLOC_COMPONENTS"}) {
    const std::string value = value_of(own, name);
    if (value.empty()) continue;
    out += fmt::format("{}{}={}", out.empty() ? "" : ", ", name, base::printable_word(value));
  }
  return out.empty() ? "this machine" : out;
}

std::string passed_over_by_hwloc(const spec::Environment& own) {
  std::string out;
  const auto add = [&](const char* name, const std::string& why) {
    out += fmt::format("{}{}={}: {}", out.empty() ? "" : "; ", name,
                       base::printable_word(value_of(own, name)), why);
  };
  for (const auto& [name, flags] :
       {std::pair("HWLOC_XMLFILE", 0), std::pair("HWLOC_FSROOT", O_DIRECTORY)}) {
    const std::string path = value_of(own, name);
    if (path.empty()) continue;
    const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags));
    if (!file.valid()) add(name, std::strerror(errno));
  }
  const std::string synthetic = value_of(own, "HWLOC_SYNTHETIC");
  if (!synthetic.empty()) {
    const auto read = synthetic_topology(synthetic);
    if (!read.ok() && read.code() == base::Code::kInvalidArgument)
      add("HWLOC_SYNTHETIC", "not understood");
  }
  return out.empty() ? "" : out + ": ignored by hwloc, which describes this machine instead";
}

base::Result<Topology> read_this_machine(const std::string& source) {
  return read(source, [](const Hwloc&, hwloc_topology_t) { return 0; });
}

base::Result<Topology> parse_hwloc_xml(const std::string& text) {
  const std::string known = as_hwloc2_xml(text);
  auto out = read("this XML", [&known](const Hwloc& hwloc, hwloc_topology_t topology) {
    return hwloc.topology_set_xmlbuffer(topology, known.c_str(),
                                        static_cast<int>(known.size()) + 1);
  });
  if (out.ok()) out->this_machine = false;
  return out;
}

base::Result<Topology> synthetic_topology(const std::string& description) {
  return read(fmt::format("'{}'", description),
              [&description](const Hwloc& hwloc, hwloc_topology_t topology) {
                return hwloc.topology_set_synthetic(topology, description.c_str());
              });
}

}  // namespace regroup::topology
