// A hardware thread is encoded as a list of numbers to save space: a machine may have a thousand.
#include "launcher/topology/machine_json.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/json_input.h"
#include "launcher/topology/paths.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {

void to_json(nlohmann::json& json, const HwThread& thread) {
  json = thread.parts;
  json.push_back(thread.os);
}

void from_json(const nlohmann::json& json, HwThread& thread) {
  for (std::size_t i = 0; i < thread.parts.size(); ++i) json.at(i).get_to(thread.parts[i]);
  json.at(thread.parts.size()).get_to(thread.os);
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Topology, threads, model, numa_bytes, cache_bytes, this_machine)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MigSlice, uuid, profile, memory_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Gpu, number, bus_id, uuid, product, arch, numa, memory_bytes,
                                   labels, mig)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Nic, name, bus_id, kind, port, gbits, numa, interface, up,
                                   addressed)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NumaNode, number, package, cpus)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Switch, name)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MachineNode, kind, index)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Link, kind, a, b, lanes, gbytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Machine, name, vendor, processors, gpus, nics, numas,
                                   pci_switches, nv_switches, nodes, links, guesses)

namespace {

constexpr int kMostCpus = 1 << 20;  // operating system numbers are below this

bool is_nic(const Nic& nic) { return nic.kind <= NicKind::kEthernet; }

// Checks all indices, since later code follows them.
bool is_sound(const Machine& machine) {
  std::vector<bool> seen(machine.ends());  // each device has one node
  for (const MachineNode& node : machine.nodes) {
    const std::size_t size = node.kind == NodeKind::kGpu         ? machine.gpus.size()
                             : node.kind == NodeKind::kNic       ? machine.nics.size()
                             : node.kind == NodeKind::kNuma      ? machine.numas.size()
                             : node.kind == NodeKind::kPciSwitch ? machine.pci_switches.size()
                                                                 : SIZE_MAX;
    if (node.kind > NodeKind::kCard || node.index >= size) return false;
    if (node.kind > NodeKind::kNuma) continue;
    const std::uint32_t end = node.kind == NodeKind::kGpu   ? machine.gpu_end(node.index)
                              : node.kind == NodeKind::kNic ? machine.nic_end(node.index)
                                                            : machine.numa_end(node.index);
    if (seen[end]) return false;
    seen[end] = true;
  }
  const auto off = [&machine](const Link& link) {
    return link.a >= machine.nodes.size() || link.b >= machine.nodes.size() ||
           link.kind > LinkKind::kSys;
  };
  const auto strange = [&machine](const auto& device) {
    return device.numa != kNoPart && device.numa >= machine.numas.size();
  };
  const auto odd = [](int cpu) { return cpu < 0 || cpu >= kMostCpus; };
  for (const NumaNode& numa : machine.numas) {
    if (std::any_of(numa.cpus.begin(), numa.cpus.end(), odd)) return false;
  }
  for (const HwThread& thread : machine.processors.threads) {
    if (odd(thread.os)) return false;
  }
  if (std::any_of(machine.gpus.begin(), machine.gpus.end(), strange) ||
      std::any_of(machine.nics.begin(), machine.nics.end(), strange))
    return false;
  return std::ranges::all_of(machine.nics, is_nic) && std::ranges::all_of(seen, std::identity()) &&
         std::ranges::none_of(machine.links, off) && check_machine(machine, "").ok();
}

}  // namespace

std::string machine_to_json(const Machine& machine) {
  return nlohmann::json(machine).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string nics_to_json(const std::vector<Nic>& nics) {
  return nlohmann::json(nics).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

base::Result<std::vector<Nic>> nics_from_json(std::string_view text) {
  const base::Status refused(base::Code::kDataLoss,
                             "the description of network cards is incomplete");
  const nlohmann::json json = base::parse_json(text);
  if (!json.is_array() || !base::whole_but(json, kRealOfMachine)) return refused;
  try {
    auto nics = json.get<std::vector<Nic>>();
    if (!std::ranges::all_of(nics, is_nic)) return refused;
    return nics;
  } catch (const nlohmann::json::exception&) {
    return refused;
  }
}

base::Result<Machine> machine_from_json(std::string_view text) {
  const base::Status refused(base::Code::kDataLoss, "the description of a machine is incomplete");
  const nlohmann::json json = base::parse_json(text);
  if (json.is_discarded() || !base::whole_but(json, kRealOfMachine)) return refused;
  Machine machine;
  try {
    json.get_to(machine);
  } catch (const nlohmann::json::exception&) {
    return refused;
  }
  if (!is_sound(machine)) return refused;
  find_paths(machine);
  return machine;
}

}  // namespace regroup::topology
