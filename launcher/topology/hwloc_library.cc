// Loads libhwloc for each reading, and converts its objects to a Topology.
#include "launcher/topology/hwloc_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace regroup::topology {
namespace {

constexpr const char* kLibrary = "libhwloc.so.15";  // all of 2.x

base::Result<Hwloc> load_hwloc() {
  void* handle = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return base::unavailable(::dlerror());
  Hwloc out;
  const char* missing = nullptr;
#define REGROUP_HWLOC_FIND(name)                                                    \
  out.name = reinterpret_cast<decltype(out.name)>(::dlsym(handle, "hwloc_" #name)); \
  if (out.name == nullptr) missing = "hwloc_" #name;
  REGROUP_HWLOC_FUNCTIONS(REGROUP_HWLOC_FIND)
#undef REGROUP_HWLOC_FIND
  if (missing == nullptr) return out;
  return base::unavailable(fmt::format("{}: function {} is missing", kLibrary, missing));
}

constexpr std::pair<hwloc_obj_type_t, spec::Unit> kParts[] = {
    {HWLOC_OBJ_CORE, spec::Unit::kCore},
    {HWLOC_OBJ_L1CACHE, spec::Unit::kL1Cache},
    {HWLOC_OBJ_L2CACHE, spec::Unit::kL2Cache},
    {HWLOC_OBJ_L3CACHE, spec::Unit::kL3Cache},
    {HWLOC_OBJ_PACKAGE, spec::Unit::kPackage}};

HwThread read_thread(hwloc_obj_t object, Topology& out) {
  HwThread thread;
  thread.os = static_cast<int>(object->os_index);
  thread.parts.fill(kNoPart);
  const auto set = [&thread](spec::Unit unit, std::uint32_t number) {
    thread.parts[static_cast<std::size_t>(unit)] = number;
  };
  set(spec::Unit::kHwThread, object->logical_index);
  set(spec::Unit::kNode, 0);
  for (hwloc_obj_t parent = object->parent; parent != nullptr; parent = parent->parent) {
    for (const auto& [type, unit] : kParts) {
      if (parent->type != type) continue;
      set(unit, parent->logical_index);
      const auto cache =
          static_cast<std::size_t>(unit) - static_cast<std::size_t>(spec::Unit::kL1Cache);
      if (cache < out.cache_bytes.size()) out.cache_bytes[cache] = parent->attr->cache.size;
    }
  }
  return thread;
}

// Fills in missing levels: each thread becomes a core, and all cores one package.
void complete(Topology& topology) {
  for (HwThread& thread : topology.threads) {
    std::uint32_t& core = thread.parts[static_cast<std::size_t>(spec::Unit::kCore)];
    if (core == kNoPart) core = thread.part(spec::Unit::kHwThread);
    std::uint32_t& package = thread.parts[static_cast<std::size_t>(spec::Unit::kPackage)];
    if (package == kNoPart) package = 0;
  }
}

}  // namespace

base::Status with_hwloc(const std::string& what, hwloc_type_filter_e devices,
                        const std::function<int(const Hwloc&, hwloc_topology_t)>& prepare,
                        const std::function<base::Status(const Hwloc&, hwloc_topology_t)>& use) {
  auto hwloc = load_hwloc();
  if (!hwloc.ok()) return hwloc.status();
  ::setenv("HWLOC_PLUGINS_PATH", "/nonexistent",
           0);  // only hwloc reads it, when it loads a topology
  hwloc_topology_t made = nullptr;
  if (hwloc->topology_init(&made) != 0)
    return base::system_error("hwloc_topology_init", what, errno);
  const auto destroy = [&hwloc](hwloc_topology* topology) { hwloc->topology_destroy(topology); };
  const std::unique_ptr<hwloc_topology, decltype(destroy)> topology(made, destroy);
  hwloc->topology_set_io_types_filter(made, devices);
  hwloc->topology_set_type_filter(made, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc->topology_set_components(made, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  if (prepare(*hwloc, made) != 0 || hwloc->topology_load(made) != 0) {
    return base::invalid_argument(
        fmt::format("hwloc cannot read {}: {}", what, std::strerror(errno)));
  }
  return use(*hwloc, made);
}

std::vector<hwloc_obj_t> hwloc_objects(const Hwloc& hwloc, hwloc_topology_t from,
                                       hwloc_obj_type_t type) {
  std::vector<hwloc_obj_t> out;
  const int depth = hwloc.get_type_depth(from, type);
  if (depth == HWLOC_TYPE_DEPTH_UNKNOWN || depth == HWLOC_TYPE_DEPTH_MULTIPLE) return out;
  const unsigned count = hwloc.get_nbobjs_by_depth(from, depth);
  for (unsigned i = 0; i < count; ++i) out.push_back(hwloc.get_obj_by_depth(from, depth, i));
  return out;
}

Topology hwloc_processors(const Hwloc& hwloc, hwloc_topology_t from) {
  Topology out;
  for (const hwloc_obj_t pu : hwloc_objects(hwloc, from, HWLOC_OBJ_PU))
    out.threads.push_back(read_thread(pu, out));
  for (const hwloc_obj_t node : hwloc_objects(hwloc, from, HWLOC_OBJ_NUMANODE)) {
    out.numa_bytes.push_back(node->attr->numanode.local_memory);
    for (HwThread& thread : out.threads) {
      std::uint32_t& numa = thread.parts[static_cast<std::size_t>(spec::Unit::kNuma)];
      // A thread may be close to two NUMA nodes (of fast and of large memory): uses the first.
      if (numa == kNoPart &&
          hwloc.bitmap_isset(node->cpuset, static_cast<unsigned>(thread.os)) != 0)
        numa = node->logical_index;
    }
  }
  for (const hwloc_obj_t package : hwloc_objects(hwloc, from, HWLOC_OBJ_PACKAGE)) {
    if (const char* model = hwloc_info(package, "CPUModel")) out.model = model;
  }
  complete(out);
  out.this_machine = hwloc.topology_is_thissystem(from) != 0;
  return out;
}

std::string as_hwloc2_xml(const std::string& text) {
  std::string out = text;
  const std::size_t version = out.find("<topology version=\"3.");
  if (version != std::string::npos) out[out.find('3', version)] = '2';
  return out;
}

const char* hwloc_info(hwloc_obj_t object, const char* name) {
  for (unsigned i = 0; i < object->infos_count; ++i) {
    if (std::strcmp(object->infos[i].name, name) == 0) return object->infos[i].value;
  }
  return nullptr;
}

}  // namespace regroup::topology
