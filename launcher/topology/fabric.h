// Hosts and the network between them as plain data. Hosts that are alike share one Machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/topology/machine.h"

namespace regroup::topology {

// kSwitch: a network switch, or a group of rail switches. kBlock: hosts that are close, with
// nothing more known. kNvlink: an NVLink domain of several hosts, as in a GB200 rack.
enum class FabricKind : std::uint8_t { kSwitch, kBlock, kNvlink };

struct FabricNode {
  std::string name;
  FabricKind kind = FabricKind::kSwitch;
  // Index into Fabric::nodes, smaller than this one's; kNoPart: a root.
  std::uint32_t parent = kNoPart;
  std::uint32_t level = 0;  // 0: a leaf, to which hosts connect
  double up_gbytes = 0;     // GB/s each way of all links to the parent together; 0: no bottleneck
  double host_gbytes = 0;   // kNvlink: GB/s each way per GPU; 0: as the GPU's own links
  // > 0: number of rails. NIC i of each host connects to rail i; rails connect only in the parent
  // (or by NVLink).
  std::uint32_t rails = 0;
  bool operator==(const FabricNode&) const = default;
};

struct FabricHost {
  std::string name;
  std::uint32_t machine = 0;       // index into Fabric::machines
  std::uint32_t leaf = kNoPart;    // index into Fabric::nodes; kNoPart: unknown
  std::uint32_t nvlink = kNoPart;  // index of its multi-host NVLink domain; kNoPart: none
  bool operator==(const FabricHost&) const = default;
};

struct Fabric {
  std::vector<Machine> machines;
  std::vector<FabricNode> nodes;
  std::vector<FabricHost> hosts;
  bool operator==(const Fabric&) const = default;
};

// The path between hosts a and b.
struct FabricPath {
  // kLoc: the same host; kNvl: one NVLink domain; kNet: the network; kDis: not connected.
  PathClass cls = PathClass::kDis;
  std::uint32_t meet = kNoPart;  // lowest common ancestor of a and b
  double gbytes = 0;             // GB/s of the narrowest link of the path; 0: no bottleneck
  // The nodes whose links to their parents the path uses, on a's and on b's side.
  std::vector<std::uint32_t> up;
  std::vector<std::uint32_t> down;
  bool operator==(const FabricPath&) const = default;
};

// Finds the path. Hosts without a known switch are connected by a network without bottlenecks
// (kNet, no `meet`).
[[nodiscard]] FabricPath fabric_path(const Fabric& fabric, std::uint32_t a, std::uint32_t b);

// Hosts `hosts`, each with `machine`, on one switch: the default for a network without a
// description.
[[nodiscard]] Fabric flat_fabric(const Machine& machine, const std::vector<std::string>& hosts);

}  // namespace regroup::topology
