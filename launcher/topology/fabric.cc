// Finds the path between two hosts in the tree of the fabric.
#include "launcher/topology/fabric.h"

#include <algorithm>

namespace regroup::topology {
namespace {

double narrower(double a, double b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

}  // namespace

FabricPath fabric_path(const Fabric& fabric, std::uint32_t a, std::uint32_t b) {
  const FabricHost &from = fabric.hosts[a], &to = fabric.hosts[b];
  FabricPath out;
  if (a == b) {
    out.cls = PathClass::kLoc;
    return out;
  }
  if (from.nvlink != kNoPart && from.nvlink == to.nvlink) {
    out.cls = PathClass::kNvl;
    out.meet = from.nvlink;
    out.gbytes = fabric.nodes[from.nvlink].host_gbytes;
    return out;
  }
  std::uint32_t left = from.leaf, right = to.leaf;
  if (left == kNoPart && right == kNoPart) {
    out.cls = PathClass::kNet;
    return out;
  }
  while (left != right && left != kNoPart &&
         right != kNoPart) {  // a parent has a smaller index than its children
    std::uint32_t& lower = left > right ? left : right;
    (left > right ? out.up : out.down).push_back(lower);
    out.gbytes = narrower(out.gbytes, fabric.nodes[lower].up_gbytes);
    lower = fabric.nodes[lower].parent;
  }
  if (left != right) return {};
  std::reverse(out.down.begin(), out.down.end());
  out.cls = PathClass::kNet;
  out.meet = left;
  return out;
}

Fabric flat_fabric(const Machine& machine, const std::vector<std::string>& hosts) {
  Fabric out;
  out.machines.push_back(machine);
  out.nodes.push_back({.name = "network"});
  for (const std::string& host : hosts) out.hosts.push_back({host, 0, 0, kNoPart});
  return out;
}

}  // namespace regroup::topology
