// One machine as plain data: processors, GPUs, NICs, the links between them, and the best path
// between each two ends. Terms and bandwidths are NCCL's (docs/design/topology.md). Bandwidths
// ignore sharing: a path lists its links, so that placement can account for links that several
// paths use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/topology/topology.h"

namespace regroup::topology {

// From the best to the worst, in NCCL's order.
enum class PathClass : std::uint8_t {
  kLoc,
  kNvl,
  kNvb,
  kC2c,
  kPix,
  kPxb,
  kP2c,
  kPxn,
  kPhb,
  kSys,
  kNet,
  kDis
};

[[nodiscard]] std::string_view path_class_name(PathClass path);  // "NVL"

struct MigSlice {
  std::string uuid;
  std::string profile;             // "1g.10gb"
  std::uint64_t memory_bytes = 0;  // 0: not known
  bool operator==(const MigSlice&) const = default;
};

struct Gpu {
  int number = 0;      // the number in nvidia-smi, NCCL or the file
  std::string bus_id;  // "0000:34:00.0", lower case; "": unknown
  std::string uuid;
  std::string product;              // "Tesla V100-SXM3-32GB-H"
  std::string arch;                 // "sm70", "gfx942"; "": unknown
  std::uint32_t numa = kNoPart;     // index into Machine::numas
  std::uint64_t memory_bytes = 0;   // 0: unknown
  std::vector<std::string> labels;  // user-defined, for output and placement requests: "old", "new"
  std::vector<MigSlice> mig;        // if this is a MIG slice: that slice; empty: a whole GPU
  bool operator==(const Gpu&) const = default;
};

enum class NicKind : std::uint8_t { kInfiniband, kRoce, kEfa, kEthernet };

[[nodiscard]] std::string_view nic_kind_name(NicKind kind);  // "roce"

// One port of a network card.
struct Nic {
  std::string name;    // the name that UCX and NCCL use: "mlx5_0", "eth0"
  std::string bus_id;  // "": unknown
  NicKind kind = NicKind::kEthernet;
  int port = 1;
  double gbits = 0;              // Gb/s of the port; 0: unknown
  std::uint32_t numa = kNoPart;  // index into Machine::numas
  std::string interface;         // its network interface ("ib0", "eth0"); "": none
  bool up = true;                // the port is up
  bool addressed = true;         // the interface is up and has an address
  bool operator==(const Nic&) const = default;
};

struct NumaNode {
  int number = 0;             // the operating system's
  std::uint32_t package = 0;  // socket
  std::vector<int> cpus;      // operating system numbers, ascending
  bool operator==(const NumaNode&) const = default;
};

// The name that stands for all NVSwitches of a board if their number is unknown.
inline constexpr std::string_view kNvSwitchesOfBoard = "nvswitches";

struct Switch {
  std::string name;  // a PCIe switch or NVSwitch: its bus id, or its name in the file
  bool operator==(const Switch&) const = default;
};

// kCard: a network card with several ports, or a GPU with MIG slices. kNvSwitch: all NVSwitches of
// one NVLink domain, as in NCCL.
enum class NodeKind : std::uint8_t { kGpu, kNic, kNuma, kPciSwitch, kNvSwitch, kCard };

struct MachineNode {
  NodeKind kind = NodeKind::kNuma;
  // Index into gpus, nics, numas or pci_switches; for kNvSwitch and kCard: a number.
  std::uint32_t index = 0;
  bool operator==(const MachineNode&) const = default;
};

enum class LinkKind : std::uint8_t { kNvlink, kXgmi, kC2c, kPci, kSys };

// A connection whose bandwidth all its traffic shares; each direction has `gbytes`.
struct Link {
  LinkKind kind = LinkKind::kPci;
  // Nodes; for kPci, b is closer to the processors.
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t lanes = 0;  // number of bonded NVLinks or xGMI links, or PCIe lanes; 0: unknown
  double gbytes = 0;        // GB/s each way, by NCCL's model
  bool operator==(const Link&) const = default;
};

struct Hop {
  std::uint32_t link = 0;
  bool forward = true;  // from Link::a to Link::b
  bool operator==(const Hop&) const = default;
};

struct Path {
  PathClass cls = PathClass::kDis;
  // GB/s of its narrowest link without other traffic; for a path to a NIC, including the NIC's
  // port.
  double gbytes = 0;
  std::vector<Hop> hops;  // from the first end to the second
  bool operator==(const Path&) const = default;
};

struct Machine {
  std::string name;
  std::string vendor;  // of the processors: "intel", "amd", "arm", "power"; "": unknown
  Topology processors;
  std::vector<Gpu> gpus;
  std::vector<Nic> nics;
  std::vector<NumaNode> numas;
  std::vector<Switch> pci_switches;
  std::vector<Switch> nv_switches;
  std::vector<MachineNode> nodes;
  std::vector<Link> links;
  std::vector<Path> paths;           // ends() x ends(), row by row; filled by find_paths()
  std::vector<Path> direct;          // gpus x nics, row by row: the best paths without PXN
  std::vector<std::string> guesses;  // a sentence for each property that the source did not give

  // Ends of paths: all GPUs, then all NICs, then all NUMA nodes.
  [[nodiscard]] std::uint32_t gpu_end(std::size_t gpu) const {
    return static_cast<std::uint32_t>(gpu);
  }
  [[nodiscard]] std::uint32_t nic_end(std::size_t nic) const {
    return static_cast<std::uint32_t>(gpus.size() + nic);
  }
  [[nodiscard]] std::uint32_t numa_end(std::size_t numa) const {
    return static_cast<std::uint32_t>(gpus.size() + nics.size() + numa);
  }
  [[nodiscard]] std::size_t ends() const { return gpus.size() + nics.size() + numas.size(); }
  [[nodiscard]] const Path& path(std::uint32_t from, std::uint32_t to) const {
    return paths[from * ends() + to];
  }
  [[nodiscard]] const Path& direct_path(std::size_t gpu, std::size_t nic) const {
    return direct[gpu * nics.size() + nic];
  }
  bool operator==(const Machine&) const = default;
};

}  // namespace regroup::topology
