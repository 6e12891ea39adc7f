// The search and the bandwidths of NCCL (src/graph/paths.cc, topo.h, search.cc), those of xGMI from
// RCCL's topo.h.
#include "launcher/topology/paths.h"

#include <algorithm>
#include <charconv>

namespace regroup::topology {
namespace {

struct Edge {
  Hop hop;
  std::uint32_t to = 0;
};

constexpr double kLocal = 5000;  // GB/s, NCCL's LOC_BW

using Edges = std::vector<std::vector<Edge>>;  // the edges of each node

struct Reach {
  std::uint32_t hops = UINT32_MAX;
  double gbytes = 0;
  std::uint32_t from = kNoPart;  // the previous node
  Hop last;
};

Edges edges_of(const Machine& machine) {
  Edges out(machine.nodes.size());
  for (std::uint32_t i = 0; i < machine.links.size(); ++i) {
    const Link& link = machine.links[i];
    out[link.a].push_back({{i, true}, link.b});
    out[link.b].push_back({{i, false}, link.a});
  }
  return out;
}

bool is_nvlink(const Link& link) {
  return link.kind == LinkKind::kNvlink || link.kind == LinkKind::kXgmi;
}

// True if a path that has reached `node` may continue over `edge`.
bool may_pass(const Machine& machine, std::uint32_t base, std::uint32_t node, const Reach& reach,
              const Edge& edge) {
  if (node == base) return true;
  const auto kind = [&machine](std::uint32_t which) { return machine.nodes[which].kind; };
  if (kind(node) == NodeKind::kNic) return false;
  if (kind(node) != NodeKind::kGpu) return true;
  return kind(base) == NodeKind::kGpu && reach.hops == 1 &&
         is_nvlink(machine.links[reach.last.link]) && kind(edge.to) == NodeKind::kGpu &&
         is_nvlink(machine.links[edge.hop.link]);
}

// Breadth-first search: in each round, all nodes that need one hop more, each by its widest path.
std::vector<Reach> reach_from(const Machine& machine, const Edges& edges, std::uint32_t base) {
  std::vector<Reach> out(machine.nodes.size());
  out[base] = {0, kLocal, kNoPart, {}};
  std::vector<std::uint32_t> layer = {base}, next;
  for (; !layer.empty(); layer = std::move(next), next.clear()) {
    for (const std::uint32_t node : layer) {
      const Reach here = out[node];
      for (const Edge& edge : edges[node]) {
        Reach& there = out[edge.to];
        const double gbytes = std::min(here.gbytes, machine.links[edge.hop.link].gbytes);
        if (there.hops <= here.hops || gbytes <= there.gbytes) continue;
        if (!may_pass(machine, base, node, here, edge)) continue;
        if (there.hops == UINT32_MAX) next.push_back(edge.to);
        there = {here.hops + 1, gbytes, node, edge.hop};
      }
    }
  }
  return out;
}

PathClass class_of(const Machine& machine, const Link& link) {
  const NodeKind a = machine.nodes[link.a].kind, b = machine.nodes[link.b].kind;
  switch (link.kind) {
    case LinkKind::kNvlink:
    case LinkKind::kXgmi:
      return PathClass::kNvl;
    case LinkKind::kC2c:
      return PathClass::kC2c;
    case LinkKind::kSys:
      return PathClass::kSys;
    case LinkKind::kPci:
      break;
  }
  if (a == NodeKind::kNic && b == NodeKind::kCard) return PathClass::kLoc;
  if (a == NodeKind::kNuma || b == NodeKind::kNuma) return PathClass::kPhb;
  return a == NodeKind::kPciSwitch && b == NodeKind::kPciSwitch ? PathClass::kPxb : PathClass::kPix;
}

// True if the path passes through a node of this kind.
bool passes(const Machine& machine, const Path& path, NodeKind kind) {
  for (std::size_t i = 0; i + 1 < path.hops.size(); ++i) {
    const Link& link = machine.links[path.hops[i].link];
    if (machine.nodes[path.hops[i].forward ? link.b : link.a].kind == kind) return true;
  }
  return false;
}

PathClass class_of(const Machine& machine, const Path& path) {
  PathClass out = PathClass::kLoc;
  bool c2c = false;
  for (const Hop& hop : path.hops) {
    const Link& link = machine.links[hop.link];
    out = std::max(out, class_of(machine, link));
    c2c |= link.kind == LinkKind::kC2c;
  }
  if (out == PathClass::kNvl && passes(machine, path, NodeKind::kGpu)) return PathClass::kNvb;
  return c2c && out == PathClass::kPhb ? PathClass::kP2c : out;
}

Path path_to(const Machine& machine, const std::vector<Reach>& reach, std::uint32_t node) {
  Path out;
  if (reach[node].hops == UINT32_MAX) return out;
  out.gbytes = reach[node].gbytes;
  for (; reach[node].from != kNoPart; node = reach[node].from) out.hops.push_back(reach[node].last);
  std::reverse(out.hops.begin(), out.hops.end());
  out.cls = class_of(machine, out);
  return out;
}

// The node of each end, in the order of Machine::paths.
std::vector<std::uint32_t> end_nodes(const Machine& machine) {
  std::vector<std::uint32_t> out(machine.ends(), kNoPart);
  for (std::uint32_t i = 0; i < machine.nodes.size(); ++i) {
    const MachineNode& node = machine.nodes[i];
    if (node.kind == NodeKind::kGpu) out[machine.gpu_end(node.index)] = i;
    if (node.kind == NodeKind::kNic) out[machine.nic_end(node.index)] = i;
    if (node.kind == NodeKind::kNuma) out[machine.numa_end(node.index)] = i;
  }
  return out;
}

// Applies further limits: a NIC's port, and the loss of Intel processors between two GPUs.
void narrow(const Machine& machine, std::size_t from, std::size_t to, Path& path) {
  const std::size_t gpus = machine.gpus.size(), nics = gpus + machine.nics.size();
  for (const std::size_t end : {from, to}) {
    if (end < gpus || end >= nics) continue;
    const double wire = wire_gbytes(machine, end - gpus);
    if (wire > 0) path.gbytes = std::min(path.gbytes, wire);
  }
  constexpr double kIntelLoses = 6.0 / 5.0;
  if (machine.vendor == "intel" && from < gpus && to < gpus &&
      passes(machine, path, NodeKind::kNuma))
    path.gbytes /= kIntelLoses;
}

bool is_down(const Machine& machine, std::size_t end) {
  const std::size_t gpus = machine.gpus.size();
  return end >= gpus && end < gpus + machine.nics.size() && !machine.nics[end - gpus].up;
}

Path reversed(Path path) {
  std::reverse(path.hops.begin(), path.hops.end());
  for (Hop& hop : path.hops) hop.forward = !hop.forward;
  return path;
}

// The path to a NIC over NVLink and the PCIe switches of another GPU (PXN), if that is wider or
// avoids the processors.
void try_pxn(Machine& machine, std::uint32_t gpu, std::uint32_t nic) {
  const auto size = static_cast<std::uint32_t>(machine.ends());
  const Path& own = machine.path(gpu, nic);
  const Path* best = nullptr;
  std::uint32_t through = 0;
  for (std::uint32_t other = 0; other < machine.gpus.size(); ++other) {
    const Path& rest = machine.path(other, nic);
    if (other == gpu || rest.cls > PathClass::kPxb ||
        machine.path(gpu, other).cls > PathClass::kNvl)
      continue;
    if (best != nullptr && (rest.gbytes < best->gbytes ||
                            (rest.gbytes == best->gbytes && rest.hops.size() >= best->hops.size())))
      continue;
    best = &rest;
    through = other;
  }
  if (best == nullptr || (best->gbytes <= own.gbytes && own.cls <= PathClass::kPxn)) return;
  Path pxn = machine.path(gpu, through);
  pxn.cls = PathClass::kPxn;
  pxn.gbytes = std::min(pxn.gbytes, best->gbytes);
  pxn.hops.insert(pxn.hops.end(), best->hops.begin(), best->hops.end());
  machine.paths[nic * size + gpu] = reversed(pxn);
  machine.paths[gpu * size + nic] = std::move(pxn);
}

}  // namespace

void find_paths(Machine& machine) {
  const Edges edges = edges_of(machine);
  const std::vector<std::uint32_t> nodes = end_nodes(machine);
  const std::size_t size = machine.ends();
  machine.paths.assign(size * size, {});
  for (std::size_t from = 0; from < size; ++from) {
    const std::vector<Reach> reach = reach_from(machine, edges, nodes[from]);
    for (std::size_t to = from; to < size; ++to) {
      const bool off = from != to && (is_down(machine, from) || is_down(machine, to));
      Path path = off ? Path() : path_to(machine, reach, nodes[to]);
      narrow(machine, from, to, path);
      machine.paths[to * size + from] = reversed(path);
      machine.paths[from * size + to] = std::move(path);
    }
  }
  machine.direct.clear();
  for (std::size_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    for (std::size_t nic = 0; nic < machine.nics.size(); ++nic)
      machine.direct.push_back(machine.path(machine.gpu_end(gpu), machine.nic_end(nic)));
  }
  for (std::size_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    for (std::size_t nic = 0; nic < machine.nics.size(); ++nic)
      try_pxn(machine, machine.gpu_end(gpu), machine.nic_end(nic));
  }
}

double wire_gbytes(const Machine& machine, std::size_t nic) {
  constexpr double kMost = 10.0 / 8;
  if (machine.nics[nic].gbits > 0) return machine.nics[nic].gbits / 8;
  double slowest = 0;
  for (const Nic& other : machine.nics) {
    if (other.up && other.gbits > 0 && (slowest == 0 || other.gbits / 8 < slowest))
      slowest = other.gbits / 8;
  }
  return std::min(kMost, slowest / 2);
}

double link_gbytes(std::string_view arch) {
  struct Row {
    std::string_view family;
    int from;  // the first architecture number with this speed
    double gbytes;
  };
  static constexpr Row kRows[] = {{"sm", 100, 40.1},  {"sm", 90, 20.6}, {"sm", 86, 12},
                                  {"sm", 70, 20},     {"sm", 0, 18},    {"gfx", 0x940, 48},
                                  {"gfx", 0x90a, 36}, {"gfx", 0, 24}};
  for (const Row& row : kRows) {
    if (!arch.starts_with(row.family)) continue;
    const std::string_view digits = arch.substr(row.family.size());
    int number = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), number,
                    row.family == "sm" ? 10 : 16);
    if (number >= row.from) return row.gbytes;
  }
  return 20;
}

double pci_gbytes(double gigatransfers, std::uint32_t lanes) {
  if (gigatransfers <= 0) gigatransfers = 8;
  if (lanes == 0) lanes = 16;
  return gigatransfers * lanes * 0.75 /
         8;  // NCCL's estimate: 12 GB/s for generation 3 with 16 lanes
}

double numa_gbytes(std::string_view vendor, int family, int model) {
  if (vendor == "amd") return 16;
  if (vendor == "arm") return 6;
  if (vendor == "power") return 32;
  if (family != 0 && family != 6) return 6;
  if (model == 0xCF || model >= 0xAD) return 40;
  if (model >= 0x8F) return 22;
  return model >= 0x55 || model == 0 ? 10 : 6;
}

}  // namespace regroup::topology
