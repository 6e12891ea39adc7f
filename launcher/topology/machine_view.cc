// Tree and matrix. Colours go from green (NVLink) over yellow (PCIe switches) to red (between
// sockets).
#include "launcher/topology/machine_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/printable.h"

namespace regroup::topology {
namespace {

std::string painted(std::string_view text, std::string_view colour, const ViewOptions& options) {
  return options.colours ? fmt::format("\x1b[{}m{}\x1b[0m", colour, text) : std::string(text);
}

std::string_view colour_of(PathClass path) {
  switch (path) {
    case PathClass::kLoc:
      return "2";
    case PathClass::kNvl:
      return "1;32";
    case PathClass::kNvb:
    case PathClass::kC2c:
      return "32";
    case PathClass::kPix:
      return "1;33";
    case PathClass::kPxb:
    case PathClass::kP2c:
      return "33";
    case PathClass::kPxn:
      return "36";
    case PathClass::kPhb:
      return "35";
    default:
      return "31";
  }
}

std::string gbytes_text(double gbytes) {
  return gbytes >= 100 ? fmt::format("{:.0f}", gbytes) : fmt::format("{:.3g}", gbytes);
}

std::string gpu_text(const Machine& machine, std::uint32_t index, const ViewOptions& options) {
  const Gpu& gpu = machine.gpus[index];
  std::string out = fmt::format("GPU {}", gpu.number);
  for (const std::string& part : {gpu.product, gpu.arch, gpu.bus_id}) {
    if (!part.empty()) out += "  " + part;
  }
  for (const std::string& label : gpu.labels) out += fmt::format("  [{}]", label);
  if (index < options.rank_of_gpu.size() && options.rank_of_gpu[index] >= 0)
    out += fmt::format("  <- rank {}", options.rank_of_gpu[index]);
  return out;
}

std::string nic_text(const Nic& nic) {
  std::string out = fmt::format("NIC {}  {}", nic.name, nic_kind_name(nic.kind));
  if (nic.gbits > 0) out += fmt::format(" {:g} Gb/s", nic.gbits);
  if (!nic.interface.empty() && nic.interface != nic.name) out += "  " + nic.interface;
  if (!nic.bus_id.empty() && nic.bus_id != nic.name) out += "  " + nic.bus_id;
  if (!nic.up) out += "  down";
  return out;
}

std::string numa_text(const NumaNode& numa) {
  std::string out = fmt::format("NUMA node {}, package {}", numa.number, numa.package);
  return out +
         (numa.cpus.empty() ? ", memory without processors" : ", processors " + ranges(numa.cpus));
}

std::string node_text(const Machine& machine, std::uint32_t node, const ViewOptions& options) {
  const MachineNode& it = machine.nodes[node];
  switch (it.kind) {
    case NodeKind::kGpu:
      return painted(gpu_text(machine, it.index, options), "1", options);
    case NodeKind::kNic:
      return painted(nic_text(machine.nics[it.index]), "36", options);
    case NodeKind::kNuma:
      return painted(numa_text(machine.numas[it.index]), "1;34", options);
    case NodeKind::kPciSwitch:
      return "switch " + machine.pci_switches[it.index].name;
    case NodeKind::kNvSwitch:
      return "NVSwitches";
    case NodeKind::kCard:
      return "card";
  }
  return "";
}

struct Tree {
  const Machine& machine;
  const ViewOptions& options;
  const std::vector<std::vector<std::uint32_t>> children = pci_children(machine);
  std::vector<double> up = {};  // GB/s of each node's link upward
  std::string out = {};

  void draw(std::uint32_t node, const std::string& indent) {
    const auto& below = children[node];
    for (std::size_t i = 0; i < below.size(); ++i) {
      const bool last = i + 1 == below.size();
      out += fmt::format("{}{} {}  {}\n", indent, last ? "└─" : "├─",
                         node_text(machine, below[i], options),
                         painted(gbytes_text(up[below[i]]) + " GB/s", "2", options));
      draw(below[i], indent + (last ? "   " : "│  "));
    }
  }
};

std::string counted(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string end_text(const Machine& machine, std::size_t end) {
  if (end < machine.gpus.size()) return fmt::format("GPU{}", machine.gpus[end].number);
  return machine.nics[end - machine.gpus.size()].name;
}

std::string cell_text(const Path& path) {
  if (path.cls == PathClass::kLoc && path.hops.empty()) return "-";
  if (path.cls == PathClass::kDis) return "DIS";
  return fmt::format("{} {}", path_class_name(path.cls), gbytes_text(path.gbytes));
}

}  // namespace

std::vector<std::vector<std::uint32_t>> pci_children(const Machine& machine) {
  std::vector<std::vector<std::uint32_t>> out(machine.nodes.size());
  for (const Link& link : machine.links) {
    if (link.kind == LinkKind::kPci) out[link.b].push_back(link.a);
  }
  const auto is_end = [&machine](std::uint32_t node) {
    const NodeKind kind = machine.nodes[node].kind;
    return kind == NodeKind::kGpu ? 1 : kind == NodeKind::kNic ? 2 : 0;
  };
  for (auto& below : out) {
    std::sort(below.begin(), below.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(is_end(a), machine.nodes[a].index) <
             std::pair(is_end(b), machine.nodes[b].index);
    });
  }
  return out;
}

std::string nvswitches_text(const Machine& machine) {
  const std::size_t known = machine.nv_switches.size();
  if (known == 1 && machine.nv_switches[0].name == kNvSwitchesOfBoard) return "NVSwitches";
  return fmt::format("{} NVSwitch{}", known, known == 1 ? "" : "es");
}

std::vector<std::string> gpu_link_lines(const Machine& machine) {
  struct Group {
    std::vector<int> to_switch, to_processor;
    std::string pairs;
  };
  std::map<std::tuple<LinkKind, std::uint32_t, double>, Group> groups;
  for (const Link& link : machine.links) {
    if (link.kind == LinkKind::kPci || link.kind == LinkKind::kSys) continue;
    Group& group = groups[{link.kind, link.lanes, link.gbytes}];
    const MachineNode &a = machine.nodes[link.a], &b = machine.nodes[link.b];
    const int number = machine.gpus[(a.kind == NodeKind::kGpu ? a : b).index].number;
    if (a.kind == NodeKind::kNvSwitch || b.kind == NodeKind::kNvSwitch) {
      group.to_switch.push_back(number);
    } else if (a.kind == NodeKind::kNuma || b.kind == NodeKind::kNuma) {
      group.to_processor.push_back(number);
    } else {
      group.pairs += fmt::format(" {}-{}", number, machine.gpus[b.index].number);
    }
  }
  std::vector<std::string> out;
  for (auto& [key, group] : groups) {
    const auto& [kind, lanes, gbytes] = key;
    const std::string_view name = kind == LinkKind::kC2c    ? "C2C"
                                  : kind == LinkKind::kXgmi ? "xGMI"
                                                            : "NVLink";
    const std::string each = fmt::format(
        "{}, {} GB/s each way", base::counted(std::max(lanes, 1U), "link"), gbytes_text(gbytes));
    std::sort(group.to_switch.begin(), group.to_switch.end());
    std::sort(group.to_processor.begin(), group.to_processor.end());
    if (!group.to_switch.empty())
      out.push_back(fmt::format("{}: GPU {} to {}, {}", name, ranges(group.to_switch),
                                nvswitches_text(machine), each));
    if (!group.to_processor.empty())
      out.push_back(
          fmt::format("{}: GPU {} to its processor, {}", name, ranges(group.to_processor), each));
    if (!group.pairs.empty()) out.push_back(fmt::format("{}:{}, {}", name, group.pairs, each));
  }
  return out;
}

std::string machine_tree(const Machine& machine, const ViewOptions& options) {
  Tree tree{machine, options};
  tree.up.resize(machine.nodes.size());
  for (const Link& link : machine.links) {
    if (link.kind == LinkKind::kPci) tree.up[link.a] = link.gbytes;
  }
  std::string out =
      painted(machine.name.empty() ? "machine" : machine.name, "1", options) +
      fmt::format(": {}, {}, {}\n", counted(machine.gpus.size(), "GPU"),
                  counted(machine.nics.size(), "NIC"), counted(machine.numas.size(), "NUMA node"));
  for (std::uint32_t node = 0; node < machine.nodes.size(); ++node) {
    if (machine.nodes[node].kind != NodeKind::kNuma) continue;
    tree.out += node_text(machine, node, options) + "\n";
    tree.draw(node, "");
  }
  out += tree.out;
  for (const std::string& line : gpu_link_lines(machine))
    out += painted(line, "32", options) + "\n";
  return out;
}

std::string machine_matrix(const Machine& machine, const ViewOptions& options) {
  const std::size_t ends = machine.gpus.size() + machine.nics.size();
  if (ends == 0) return "";
  std::size_t name = 0, width = 3;
  std::vector<std::size_t> columns;
  for (std::size_t a = 0; a < ends; ++a) name = std::max(name, end_text(machine, a).size());
  for (std::uint32_t b = 0; b < ends; ++b) {
    width = std::max<std::size_t>(end_text(machine, b).size(), 3);
    for (std::uint32_t a = 0; a < ends; ++a)
      width = std::max(width, cell_text(machine.path(a, b)).size());
    columns.push_back(width);
  }
  std::string out = fmt::format("{:{}}", "", name);
  for (std::size_t b = 0; b < ends; ++b)
    out += fmt::format("  {:{}}", end_text(machine, b), columns[b]);
  out = out.substr(0, out.find_last_not_of(' ') + 1) + "\n";
  for (std::uint32_t a = 0; a < ends; ++a) {
    out += fmt::format("{:{}}", end_text(machine, a), name);
    for (std::uint32_t b = 0; b < ends; ++b) {
      const Path& path = machine.path(a, b);
      const std::string text =
          b + 1 == ends ? cell_text(path) : fmt::format("{:{}}", cell_text(path), columns[b]);
      out += "  " + painted(text, colour_of(path.cls), options);
    }
    out += "\n";
  }
  return out;
}

std::string machine_view(const Machine& machine, const ViewOptions& options) {
  std::string out = machine_tree(machine, options);
  const std::string matrix = machine_matrix(machine, options);
  if (!matrix.empty()) out += "\nGB/s each way, alone in the machine:\n" + matrix;
  for (const std::string& guess : machine.guesses) out += fmt::format("note: {}\n", guess);
  return out;
}

}  // namespace regroup::topology
