// Computes the loads of links from the paths of a machine.
#include "launcher/placement/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "launcher/topology/paths.h"

namespace regroup::placement {
namespace {

constexpr double kUnknownWire = 10.0 / 8;  // NCCL's assumption

std::string node_name(const topology::Machine& machine, std::uint32_t number) {
  const topology::MachineNode& node = machine.nodes[number];
  switch (node.kind) {
    case topology::NodeKind::kGpu:
      return fmt::format("GPU {}", machine.gpus[node.index].number);
    case topology::NodeKind::kNic:
      return machine.nics[node.index].name;
    case topology::NodeKind::kNuma:
      return fmt::format("NUMA node {}", machine.numas[node.index].number);
    case topology::NodeKind::kPciSwitch:
      return fmt::format("PCIe switch {}", machine.pci_switches[node.index].name);
    case topology::NodeKind::kNvSwitch:
      return "the NVSwitches";
    case topology::NodeKind::kCard:
      return fmt::format("card {}", node.index);
  }
  return "?";
}

std::string_view kind_name(topology::LinkKind kind) {
  switch (kind) {
    case topology::LinkKind::kNvlink:
      return "NVLink";
    case topology::LinkKind::kXgmi:
      return "xGMI link";
    case topology::LinkKind::kC2c:
      return "C2C link";
    case topology::LinkKind::kPci:
      return "PCIe link";
    case topology::LinkKind::kSys:
      return "link between processors";
  }
  return "link";
}

// Excludes NVB and PXN, whose paths pass through another GPU, which may belong to another job. If
// it belongs to this job, a ring passes through it anyway.
const topology::Path& direct(const topology::Machine& machine, std::uint32_t a, std::uint32_t b) {
  const auto [gpu, nic] = std::minmax(a, b);
  return machine.direct_path(gpu, nic - machine.gpus.size());
}

topology::Machine without_nvlink(topology::Machine machine) {
  for (topology::Link& link : machine.links) {
    if (link.kind == topology::LinkKind::kNvlink || link.kind == topology::LinkKind::kXgmi)
      link.gbytes = 0;
  }
  topology::find_paths(machine);
  return machine;
}

// NCCL's factor for a PCIe path to a GPU or NIC that some processor models slow down.
double slowed(const topology::Machine& machine, const topology::Path& path) {
  double narrowest = 0;
  for (const topology::Hop& hop : path.hops) {
    const double gbytes = machine.links[hop.link].gbytes;
    narrowest = narrowest == 0 ? gbytes : std::min(narrowest, gbytes);
  }
  return path.gbytes > 0 && narrowest > path.gbytes ? narrowest / path.gbytes : 1;
}

}  // namespace

Routes::Routes(const topology::Machine& machine)
    : machine_(machine), ends_(static_cast<std::uint32_t>(machine.ends())) {
  for (const topology::Link& link : machine.links) capacity_.push_back(link.gbytes);
  for (std::size_t nic = 0; nic < machine.nics.size(); ++nic) {
    const double wire = topology::wire_gbytes(machine, nic);
    capacity_.push_back(wire > 0 ? wire : kUnknownWire);
  }
  std::optional<topology::Machine> plain;
  starts_.push_back(0);
  for (std::uint32_t from = 0; from < ends_; ++from) {
    for (std::uint32_t to = 0; to < ends_; ++to) {
      const topology::Path& path = machine.path(from, to);
      if (path.cls == topology::PathClass::kNvb && !plain) plain = without_nvlink(machine);
      append(path.cls == topology::PathClass::kNvb   ? plain->path(from, to)
             : path.cls == topology::PathClass::kPxn ? direct(machine, from, to)
                                                     : path,
             from, to);
      starts_.push_back(static_cast<std::uint32_t>(uses_.size()));
    }
  }
}

void Routes::append(const topology::Path& path, std::uint32_t from, std::uint32_t to) {
  const auto gpus = static_cast<std::uint32_t>(machine_.gpus.size());
  const auto nics = gpus + static_cast<std::uint32_t>(machine_.nics.size());
  const auto is_nic = [&](std::uint32_t end) { return end >= gpus && end < nics; };
  if (from == to || (is_nic(from) && is_nic(to)) || path.cls == topology::PathClass::kDis) return;
  const double amount = from < gpus && to < gpus ? slowed(machine_, path) : 1;
  for (const topology::Hop& hop : path.hops) uses_.push_back({hop.link, amount});
  const auto wire = [&](std::uint32_t nic) {
    uses_.push_back({static_cast<std::uint32_t>(machine_.links.size()) + nic - gpus, 1});
  };
  if (is_nic(from)) wire(from);
  if (is_nic(to)) wire(to);
}

std::string Routes::name(std::uint32_t row) const {
  if (row >= machine_.links.size())
    return fmt::format("the wire of {}", machine_.nics[row - machine_.links.size()].name);
  const topology::Link& link = machine_.links[row];
  return fmt::format("the {} of {} to {}", kind_name(link.kind), node_name(machine_, link.a),
                     node_name(machine_, link.b));
}

}  // namespace regroup::placement
