// Builds a Machine, for all readers of recorded and live machines, from devices on a PCIe tree and
// from NVLinks as each end lists them, in any order.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/topology/machine.h"

namespace regroup::topology {

// A PCIe link upward from a device, or from a switch's upstream port. 0 GB/s: unknown.
struct PciUplink {
  std::string bus_id;
  double gbytes = 0;
  std::uint32_t lanes = 0;
  bool operator==(const PciUplink&) const = default;
};

// A GPU, or a network card with its ports.
struct PciDevice {
  PciUplink link;
  std::vector<PciUplink> switches;  // the switches above it, from the processors down
  int numa = -1;                    // operating system number; -1: unknown
  std::optional<Gpu> gpu;
  std::vector<Nic> ports;
  std::size_t line = 0;
};

// An NVLink or xGMI connection as one of its ends lists it.
struct GpuLink {
  enum class To { kGpu, kSwitch, kProcessor };
  LinkKind kind = LinkKind::kNvlink;
  std::string from;  // bus id of a GPU
  To to = To::kGpu;
  std::string target;  // bus id
  std::uint32_t lanes = 1;
  std::size_t line = 0;
};

struct MachineParts {
  std::string source;
  std::string name;
  std::string vendor;
  double numa_gbytes = 10;
  bool live = false;         // drop a link that only one end lists, instead of an error
  bool links_known = false;  // `links` is complete: do not fill in those of the product
  Topology processors;
  std::vector<NumaNode> numas;
  std::vector<PciDevice> devices;
  std::vector<GpuLink> links;
  std::vector<std::string> guesses;
};

// Builds the machine and finds its paths. GPUs are in the order of their numbers; each MIG slice is
// a GPU with the number of its whole GPU, whose PCIe link all slices share, and has no NVLinks.
// NICs keep their order. If no NVLink is listed, fills in those of the product. kInvalidArgument,
// "SOURCE:LINE: ...": a duplicate bus id, a link that only one end lists, numbers out of bounds.
[[nodiscard]] base::Result<Machine> build_machine(MachineParts parts);

// The switches among the bridges above a device (root port first). As in NCCL, every second bridge
// is the upstream port of a switch.
[[nodiscard]] std::vector<PciUplink> switches_among(const std::vector<PciUplink>& bridges);

}  // namespace regroup::topology
