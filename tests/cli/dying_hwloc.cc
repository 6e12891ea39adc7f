// Stands in for libhwloc.so.15 in tests: has its functions, and dies when it is to read something.
#include <csignal>
#include <cstdint>

#define REGROUP_STAND_IN(name) \
  extern "C" std::intptr_t hwloc_##name() { return 0; }
REGROUP_STAND_IN(topology_init)
REGROUP_STAND_IN(topology_destroy)
REGROUP_STAND_IN(topology_is_thissystem)
REGROUP_STAND_IN(topology_set_components)
REGROUP_STAND_IN(topology_set_io_types_filter)
REGROUP_STAND_IN(topology_set_type_filter)
REGROUP_STAND_IN(topology_set_synthetic)
REGROUP_STAND_IN(topology_set_xmlbuffer)
REGROUP_STAND_IN(get_type_depth)
REGROUP_STAND_IN(get_nbobjs_by_depth)
REGROUP_STAND_IN(get_obj_by_depth)
REGROUP_STAND_IN(bitmap_first)
REGROUP_STAND_IN(bitmap_next)
REGROUP_STAND_IN(bitmap_isset)
REGROUP_STAND_IN(distances_get_by_name)
REGROUP_STAND_IN(distances_release)

extern "C" std::intptr_t hwloc_topology_load() { return ::raise(SIGSEGV); }
