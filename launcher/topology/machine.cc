// Names of enumerators, and the functions that add nodes and links to a Machine.
#include "launcher/topology/machine.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "launcher/topology/paths.h"

namespace regroup::topology {
namespace {

std::uint32_t add_node(Machine& machine, NodeKind kind, std::size_t index) {
  machine.nodes.push_back({kind, static_cast<std::uint32_t>(index)});
  return static_cast<std::uint32_t>(machine.nodes.size() - 1);
}

}  // namespace

std::string_view path_class_name(PathClass path) {
  static constexpr std::array<std::string_view, 12> kNames = {
      "LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};
  return kNames[static_cast<std::size_t>(path)];
}

std::string_view nic_kind_name(NicKind kind) {
  static constexpr std::array<std::string_view, 4> kNames = {"ib", "roce", "efa", "ethernet"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::uint32_t add_gpu(Machine& machine, Gpu gpu) {
  machine.gpus.push_back(std::move(gpu));
  return add_node(machine, NodeKind::kGpu, machine.gpus.size() - 1);
}

std::uint32_t add_nic(Machine& machine, Nic nic) {
  machine.nics.push_back(std::move(nic));
  return add_node(machine, NodeKind::kNic, machine.nics.size() - 1);
}

std::uint32_t add_numa(Machine& machine, NumaNode numa) {
  machine.numas.push_back(std::move(numa));
  return add_node(machine, NodeKind::kNuma, machine.numas.size() - 1);
}

std::uint32_t add_pci_switch(Machine& machine, Switch pci) {
  machine.pci_switches.push_back(std::move(pci));
  return add_node(machine, NodeKind::kPciSwitch, machine.pci_switches.size() - 1);
}

std::uint32_t add_plain_node(Machine& machine, NodeKind kind) {
  const auto same = std::count_if(machine.nodes.begin(), machine.nodes.end(),
                                  [kind](const MachineNode& node) { return node.kind == kind; });
  return add_node(machine, kind, static_cast<std::size_t>(same));
}

void add_link(Machine& machine, Link link) { machine.links.push_back(link); }

void order_gpus(Machine& machine) {
  std::vector<std::uint32_t> order(machine.gpus.size()), place(machine.gpus.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&machine](std::uint32_t a, std::uint32_t b) {
    return machine.gpus[a].number < machine.gpus[b].number;
  });
  std::vector<Gpu> gpus;
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    gpus.push_back(std::move(machine.gpus[order[i]]));
  }
  machine.gpus = std::move(gpus);
  for (MachineNode& node : machine.nodes) {
    if (node.kind == NodeKind::kGpu) node.index = place[node.index];
  }
}

void link_numas(Machine& machine, double gbytes) {
  const auto joined = [&machine](std::uint32_t a, std::uint32_t b) {
    return std::any_of(machine.links.begin(), machine.links.end(), [a, b](const Link& link) {
      return link.kind == LinkKind::kSys &&
             ((link.a == a && link.b == b) || (link.a == b && link.b == a));
    });
  };
  std::vector<std::uint32_t> numas;
  for (std::uint32_t i = 0; i < machine.nodes.size(); ++i) {
    if (machine.nodes[i].kind == NodeKind::kNuma) numas.push_back(i);
  }
  for (std::size_t i = 0; i < numas.size(); ++i) {
    for (std::size_t j = i + 1; j < numas.size(); ++j) {
      if (!joined(numas[i], numas[j]))
        add_link(machine, {LinkKind::kSys, numas[i], numas[j], 0, gbytes});
    }
  }
}

}  // namespace regroup::topology
