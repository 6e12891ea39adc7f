// Hosts and the network between them as plain data. Hosts that are alike share one Machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/topology/machine.h"

namespace regroup::topology {

// kSwitch: a network switch, or a group of rail switches. kBlock: hosts that belong together,
// nothing more is known. kNvlink: an NVLink domain over hosts, as in a rack of GB200.
enum class FabricKind : std::uint8_t { kSwitch, kBlock, kNvlink };

struct FabricNode {
  std::string name;
  FabricKind kind = FabricKind::kSwitch;
  // Index into Fabric::nodes, smaller than this one's; kNoPart: a root.
  std::uint32_t parent = kNoPart;
  std::uint32_t level = 0;  // 0: hosts hang on it, or on nothing below it
  double up_gbytes = 0;    // GB/s each way of all its links to the parent together; 0: never narrow
  double host_gbytes = 0;  // kNvlink: GB/s each way of one GPU in it; 0: as the GPU's own links
  // > 0: NIC i of each host hangs on rail i, rails meet in the parent only (or in NVLink).
  std::uint32_t rails = 0;
  bool operator==(const FabricNode&) const = default;
};

struct FabricHost {
  std::string name;
  std::uint32_t machine = 0;       // index into Fabric::machines
  std::uint32_t leaf = kNoPart;    // index into Fabric::nodes; kNoPart: not known
  std::uint32_t nvlink = kNoPart;  // the NVLink domain over hosts that it is in, if any
  bool operator==(const FabricHost&) const = default;
};

struct Fabric {
  std::vector<Machine> machines;
  std::vector<FabricNode> nodes;
  std::vector<FabricHost> hosts;
  bool operator==(const Fabric&) const = default;
};

// What lies between two hosts.
struct FabricPath {
  PathClass cls = PathClass::kDis;  // kLoc: the same host; kNvl: one NVLink domain; kNet; kDis:
                                    // nothing joins them
  std::uint32_t meet = kNoPart;     // the node where both ways up meet
  double gbytes = 0;                // of the narrowest link on the way; 0: none is narrow
  std::vector<std::uint32_t> up,
      down;  // nodes whose link to the parent is used, from a's side, from b's side
  bool operator==(const FabricPath&) const = default;
};

// Hosts without a known switch are connected by a network without bottlenecks (kNet, no `meet`).
[[nodiscard]] FabricPath fabric_path(const Fabric& fabric, std::uint32_t a, std::uint32_t b);

// Hosts NAME0... with `machine`, on one switch: the default for a network without a description.
[[nodiscard]] Fabric flat_fabric(const Machine& machine, const std::vector<std::string>& hosts);

}  // namespace regroup::topology
