// hwloc, loaded at run time behind a table of function pointers. Linking it would cost each start
// 0.3 ms; its plugins (for GPUs and XML, not needed here) and its CPUID backend would cost each
// discovery more than 10 ms.
#pragma once

#include <hwloc.h>

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/topology/topology.h"

namespace regroup::topology {

#define REGROUP_HWLOC_FUNCTIONS(X) \
  X(topology_init)                 \
  X(topology_load)                 \
  X(topology_destroy)              \
  X(topology_is_thissystem)        \
  X(topology_set_components)       \
  X(topology_set_io_types_filter)  \
  X(topology_set_type_filter)      \
  X(topology_set_synthetic)        \
  X(topology_set_xmlbuffer)        \
  X(get_type_depth)                \
  X(get_nbobjs_by_depth)           \
  X(get_obj_by_depth)              \
  X(bitmap_first)                  \
  X(bitmap_next)                   \
  X(bitmap_isset)                  \
  X(distances_get_by_name)         \
  X(distances_release)

struct Hwloc {
#define REGROUP_HWLOC_DECLARE(name) \
  decltype(&::hwloc_##name) name = nullptr;  // NOLINT(bugprone-macro-parentheses): a declared name
  REGROUP_HWLOC_FUNCTIONS(REGROUP_HWLOC_DECLARE)
#undef REGROUP_HWLOC_DECLARE
};

// Loads the topology that `prepare` has set up and passes it to `use`. Call it only in a separate
// process (read_in_child.h), since libhwloc trusts its input and this sets HWLOC_PLUGINS_PATH.
// `prepare` returns 0 for success, as hwloc's own calls do. `what` names the input in errors.
[[nodiscard]] base::Status with_hwloc(
    const std::string& what, hwloc_type_filter_e devices,
    const std::function<int(const Hwloc&, hwloc_topology_t)>& prepare,
    const std::function<base::Status(const Hwloc&, hwloc_topology_t)>& use);

// All objects of one type, in logical order; also works for I/O objects such as PCI devices.
[[nodiscard]] std::vector<hwloc_obj_t> hwloc_objects(const Hwloc& hwloc, hwloc_topology_t from,
                                                     hwloc_obj_type_t type);

// Converts processors, caches and NUMA nodes.
[[nodiscard]] Topology hwloc_processors(const Hwloc& hwloc, hwloc_topology_t from);

// Makes XML of hwloc 3.x acceptable to libhwloc 2, which only checks the version number: processors
// and caches have the same form in both.
[[nodiscard]] std::string as_hwloc2_xml(const std::string& text);

// The value of the object's info attribute `name`; nullptr: none.
[[nodiscard]] const char* hwloc_info(hwloc_obj_t object, const char* name);

}  // namespace regroup::topology
