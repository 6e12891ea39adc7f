// Each rank sees only its own GPUs and nearest NIC. NCCL's NICs are those of all ranks of the host,
// since its rings use several and the ranks of a host must agree on them. Does not set OMP_PLACES
// and OMP_PROC_BIND: processes that a member forks (workers of a data loader) would inherit a
// binding to one core.
#include "launcher/placement/rank_environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

namespace regroup::placement {
namespace {

bool is_amd(const topology::Gpu& gpu) { return gpu.arch.starts_with("gfx"); }

bool is_verbs(const topology::Nic& nic) {
  return nic.kind == topology::NicKind::kInfiniband || nic.kind == topology::NicKind::kRoce;
}

const std::string& uuid_of(const topology::Machine& machine, const HostDevices* own,
                           std::uint32_t gpu) {
  return own != nullptr && gpu < own->uuids.size() ? own->uuids[gpu] : machine.gpus[gpu].uuid;
}

// The host's NIC; nullptr: the host does not have it, or it is down.
const topology::Nic* nic_of(const topology::Machine& machine, const HostDevices* own,
                            std::uint32_t number) {
  const bool listed = own != nullptr && number < own->nics.size();
  const topology::Nic& nic = listed ? own->nics[number] : machine.nics[number];
  return nic.up && machine.nics[number].up && !nic.name.empty() ? &nic : nullptr;
}

const HostDevices* own_of(const std::vector<HostDevices>& devices, std::uint32_t host) {
  return host < devices.size() ? &devices[host] : nullptr;
}

// CUDA needs all GPUs by uuid, or all by number. Numbers are in PCI order, as in NVML; CUDA's
// default order has the fastest GPU first.
void set_gpus(const topology::Machine& machine, const HostDevices* own,
              const std::vector<std::uint32_t>& gpus, const spec::Environment& users,
              spec::Environment& rank) {
  const bool named = std::all_of(gpus.begin(), gpus.end(), [&](std::uint32_t gpu) {
    return !uuid_of(machine, own, gpu).empty();
  });
  std::vector<std::string> out;
  for (const std::uint32_t gpu : gpus)
    out.push_back(named ? uuid_of(machine, own, gpu) : std::to_string(machine.gpus[gpu].number));
  const std::string list = fmt::format("{}", fmt::join(out, ","));
  if (machine.gpus.empty() || !is_amd(machine.gpus.front())) {
    rank["CUDA_VISIBLE_DEVICES"] = list;
    if (!named) rank["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
    return;
  }
  rank["ROCR_VISIBLE_DEVICES"] = list;
  std::vector<std::size_t> within(gpus.size());  // numbers within ROCR_VISIBLE_DEVICES
  std::iota(within.begin(), within.end(), 0U);
  for (const char* name : {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"}) {
    if (users.contains(name)) rank[name] = fmt::format("{}", fmt::join(within, ","));
  }
}

// UCX's name of a NIC: "mlx5_0:1" for RDMA, else the name of its interface.
std::string ucx_name(const topology::Nic& nic) {
  if (is_verbs(nic) || nic.kind == topology::NicKind::kEfa)
    return fmt::format("{}:{}", nic.name, nic.port);
  return nic.interface.empty() ? nic.name : nic.interface;
}

struct HostNics {
  std::set<std::string> verbs, interfaces;
};

std::map<std::uint32_t, HostNics> nics_of(const topology::Fabric& fabric,
                                          const std::vector<DeviceSlot>& ranks,
                                          const std::vector<HostDevices>& devices) {
  std::map<std::uint32_t, HostNics> all;
  for (const DeviceSlot& slot : ranks) {
    const topology::Machine& machine = fabric.machines[fabric.hosts[slot.host].machine];
    HostNics& out = all[slot.host];
    for (const std::uint32_t number : slot.nics) {
      const topology::Nic* const nic = nic_of(machine, own_of(devices, slot.host), number);
      if (nic == nullptr) continue;
      if (is_verbs(*nic)) out.verbs.insert(fmt::format("{}:{}", nic->name, nic->port));
      const std::string interface = !nic->interface.empty() ? nic->interface : nic->name;
      const bool known = nic->kind == topology::NicKind::kEthernet || !nic->interface.empty();
      if (known && nic->addressed) out.interfaces.insert(interface);
    }
  }
  return all;
}

std::string as_json(const topology::Fabric& fabric, const DeviceSlot& slot,
                    const HostDevices* own) {
  const topology::Machine& machine = fabric.machines[fabric.hosts[slot.host].machine];
  nlohmann::json out = {{"host", fabric.hosts[slot.host].name},
                        {"gpus", nlohmann::json::array()},
                        {"nics", nlohmann::json::array()},
                        {"cpus", topology::ranges(slot.cpus)},
                        {"why", slot.why}};
  for (const std::uint32_t gpu : slot.gpus) {
    out["gpus"].push_back({{"number", machine.gpus[gpu].number},
                           {"uuid", uuid_of(machine, own, gpu)},
                           {"product", machine.gpus[gpu].product}});
    const bool claimed = own != nullptr && gpu < own->claims.size() && !own->claims[gpu].empty();
    if (claimed) out["gpus"].back()["claim"] = own->claims[gpu];
  }
  for (const std::uint32_t number : slot.nics) {
    const topology::Nic* const nic = nic_of(machine, own, number);
    out["nics"].push_back((nic != nullptr ? *nic : machine.nics[number]).name);
  }
  if (!slot.role.empty()) out["role"] = slot.role;
  if (slot.numa != topology::kNoPart) out["numa"] = machine.numas[slot.numa].number;
  return out.dump();
}

}  // namespace

std::vector<spec::Environment> rank_environments(const topology::Fabric& fabric,
                                                 const std::vector<DeviceSlot>& ranks,
                                                 const std::string& nccl_topology,
                                                 const spec::Environment& own,
                                                 const std::vector<HostDevices>& devices) {
  const std::map<std::uint32_t, HostNics> nics_on = nics_of(fabric, ranks, devices);
  std::vector<spec::Environment> out;
  for (const DeviceSlot& slot : ranks) {
    const topology::Machine& machine = fabric.machines[fabric.hosts[slot.host].machine];
    const HostNics& nics = nics_on.at(slot.host);
    const HostDevices* const named = own_of(devices, slot.host);
    spec::Environment& rank = out.emplace_back();
    const auto set = [&](const std::string& name, const std::string& value) {
      if (!value.empty() && !own.contains(name)) rank[name] = value;
    };
    set_gpus(machine, named, slot.gpus, own, rank);
    std::vector<std::string> near;
    for (const std::uint32_t nic : slot.nics) {
      if (const topology::Nic* const here = nic_of(machine, named, nic))
        near.push_back(ucx_name(*here));
    }
    set("UCX_NET_DEVICES", fmt::format("{}", fmt::join(near, ",")));
    if (!nics.verbs.empty()) set("NCCL_IB_HCA", fmt::format("={}", fmt::join(nics.verbs, ",")));
    if (!nics.interfaces.empty())
      set("NCCL_SOCKET_IFNAME", fmt::format("={}", fmt::join(nics.interfaces, ",")));
    set("NCCL_TOPO_FILE", nccl_topology);
    rank["REGROUP_PLACEMENT"] = as_json(fabric, slot, named);
  }
  return out;
}

}  // namespace regroup::placement
