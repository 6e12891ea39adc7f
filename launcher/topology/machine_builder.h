// What readers of recorded and of live machines have in common: devices on a PCIe tree and NVLinks
// as each end lists them, in any order, become a Machine.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/topology/machine.h"

namespace regroup::topology {

// A link upward: from a switch's upstream port, or from a device. 0 GB/s: not known.
struct PciUplink {
  std::string bus_id;
  double gbytes = 0;
  std::uint32_t lanes = 0;
  bool operator==(const PciUplink&) const = default;
};

// A GPU, or a network card with its ports.
struct PciDevice {
  PciUplink link;
  std::vector<PciUplink> switches;  // above it, from the processors down
  int numa = -1;                    // number of the operating system; -1: not known
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
  bool live = false;         // a link that one end lists only is left out, instead of an error
  bool links_known = false;  // `links` are all there are: a product's are not filled in
  Topology processors;
  std::vector<NumaNode> numas;
  std::vector<PciDevice> devices;
  std::vector<GpuLink> links;
  std::vector<std::string> guesses;
};

// GPUs are counted by their number, each MIG slice as one (with the number of its GPU, on whose
// PCIe link all of its slices are, and without NVLinks), NICs as they come; where no NVLink is
// listed, those of the product are filled in. kInvalidArgument, "SOURCE:LINE: ...": a bus id twice,
// a link of one side only, beyond the bounds.
[[nodiscard]] base::Result<Machine> build_machine(MachineParts parts);

// The switches among the bridges above a device (root port first): as NCCL, each second bridge is a
// switch's upstream port.
[[nodiscard]] std::vector<PciUplink> switches_among(const std::vector<PciUplink>& bridges);

}  // namespace regroup::topology
