// Any text as the network between hosts: Slurm's topology.conf, labels of Kubernetes nodes, YAML.
#include <cstddef>
#include <cstdint>
#include <string>

#include "launcher/topology/load_fabric.h"
#include "tests/fuzz/require.h"

using regroup::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regroup::topology;
  const auto fabric =
      parse_fabric(std::string(reinterpret_cast<const char*>(data), size), {}, "fuzz");
  if (!fabric.ok()) return 0;
  for (std::uint32_t i = 0; i < fabric->nodes.size(); ++i)
    require(fabric->nodes[i].parent == kNoPart || fabric->nodes[i].parent < i);
  const auto hosts = static_cast<std::uint32_t>(fabric->hosts.size());
  if (hosts > 0)
    require(fabric_path(*fabric, 0, hosts - 1).cls == fabric_path(*fabric, hosts - 1, 0).cls);
  return 0;
}
