// hwloc behind a table of pointers. Linking it would cost each start 0.3 ms, its plugins (for GPUs
// and XML libraries, of no use here) and its CPUID backend 10 ms and more of each discovery.
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

// Reads `what` and hands it to `use`, in a process of its own (read_apart.h): libhwloc trusts what
// it reads, and this sets HWLOC_PLUGINS_PATH. `prepare` says what to read; 0 for success, as
// hwloc's own calls.
[[nodiscard]] base::Status with_hwloc(
    const std::string& what, hwloc_type_filter_e devices,
    const std::function<int(const Hwloc&, hwloc_topology_t)>& prepare,
    const std::function<base::Status(const Hwloc&, hwloc_topology_t)>& use);

// All objects of one type, in logical order; PCI devices and the like too.
[[nodiscard]] std::vector<hwloc_obj_t> hwloc_objects(const Hwloc& hwloc, hwloc_topology_t from,
                                                     hwloc_obj_type_t type);

// Processors, caches and NUMA nodes.
[[nodiscard]] Topology hwloc_processors(const Hwloc& hwloc, hwloc_topology_t from);

// Processors and caches are written alike in 2.x and 3.x; libhwloc 2 only looks at the number.
[[nodiscard]] std::string as_hwloc2_xml(const std::string& text);

// The text after this name; nullptr: there is none.
[[nodiscard]] const char* hwloc_info(hwloc_obj_t object, const char* name);

}  // namespace regroup::topology
