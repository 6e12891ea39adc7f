// Each rank gets its GPUs and its nearest NIC alone. NCCL's NICs are those of all ranks of the host: its
// rings use several, and ranks of one host must agree on them. OMP_PLACES and OMP_PROC_BIND are not set:
// processes that a member forks (workers of a data loader) would inherit one core from them.
#include "launcher/place/rank_environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/options/values.h"

namespace regroup::launcher {
namespace {

bool is_amd(const Gpu& gpu) { return gpu.arch.starts_with("gfx"); }

bool is_verbs(const Nic& nic) { return nic.kind == NicKind::kInfiniband || nic.kind == NicKind::kRoce; }

// As CUDA takes it: all by uuid, or all by number.
std::string visible(const Machine& machine, const std::vector<std::uint32_t>& gpus) {
  const bool named = std::all_of(gpus.begin(), gpus.end(),
                                 [&](std::uint32_t gpu) { return !machine.gpus[gpu].uuid.empty(); });
  std::vector<std::string> out;
  for (const std::uint32_t gpu : gpus)
    out.push_back(named ? machine.gpus[gpu].uuid : std::to_string(machine.gpus[gpu].number));
  return fmt::format("{}", fmt::join(out, ","));
}

// "mlx5_0:1"; UCX takes other cards by the name of their interface.
std::string ucx_name(const Nic& nic) {
  if (is_verbs(nic) || nic.kind == NicKind::kEfa) return fmt::format("{}:{}", nic.name, nic.port);
  return nic.interface.empty() ? nic.name : nic.interface;
}

struct HostNics {
  std::set<std::string> verbs, interfaces;
};

HostNics nics_of(const Machine& machine, const DevicePlacement& placement, std::uint32_t host) {
  HostNics out;
  for (const DeviceSpot& spot : placement.ranks) {
    if (spot.host != host) continue;
    for (const std::uint32_t number : spot.nics) {
      const Nic& nic = machine.nics[number];
      if (is_verbs(nic)) out.verbs.insert(fmt::format("{}:{}", nic.name, nic.port));
      const std::string interface = !nic.interface.empty() ? nic.interface : nic.name;
      if (nic.kind == NicKind::kEthernet || !nic.interface.empty()) out.interfaces.insert(interface);
    }
  }
  return out;
}

std::string as_json(const Fabric& fabric, const DeviceSpot& spot) {
  const Machine& machine = fabric.machines[fabric.hosts[spot.host].machine];
  nlohmann::json out = {{"host", fabric.hosts[spot.host].name},
                        {"gpus", nlohmann::json::array()},
                        {"nics", nlohmann::json::array()},
                        {"cpus", ranges(spot.cpus)},
                        {"why", spot.why}};
  for (const std::uint32_t gpu : spot.gpus) {
    out["gpus"].push_back({{"number", machine.gpus[gpu].number},
                           {"uuid", machine.gpus[gpu].uuid},
                           {"product", machine.gpus[gpu].product}});
  }
  for (const std::uint32_t nic : spot.nics) out["nics"].push_back(machine.nics[nic].name);
  if (spot.numa != kNoPart) out["numa"] = machine.numas[spot.numa].number;
  return out.dump();
}

}  // namespace

std::vector<Environment> rank_environments(const Fabric& fabric, const DevicePlacement& placement,
                                           std::uint32_t host, const std::string& nccl_topology,
                                           const Environment& own) {
  const Machine& machine = fabric.machines[fabric.hosts[host].machine];
  const HostNics nics = nics_of(machine, placement, host);
  std::vector<Environment> out;
  for (const DeviceSpot& spot : placement.ranks) {
    Environment& rank = out.emplace_back();
    if (spot.host != host) continue;
    const auto set = [&](const std::string& name, const std::string& value) {
      if (!value.empty() && !own.contains(name)) rank[name] = value;
    };
    if (!spot.gpus.empty()) {
      const bool amd = is_amd(machine.gpus[spot.gpus.front()]);
      rank[amd ? "ROCR_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES"] = visible(machine, spot.gpus);
    }
    std::vector<std::string> near;
    for (const std::uint32_t nic : spot.nics) near.push_back(ucx_name(machine.nics[nic]));
    set("UCX_NET_DEVICES", fmt::format("{}", fmt::join(near, ",")));
    if (!nics.verbs.empty()) set("NCCL_IB_HCA", fmt::format("={}", fmt::join(nics.verbs, ",")));
    if (!nics.interfaces.empty())
      set("NCCL_SOCKET_IFNAME", fmt::format("={}", fmt::join(nics.interfaces, ",")));
    set("NCCL_TOPO_FILE", nccl_topology);
    rank["REGROUP_PLACEMENT"] = as_json(fabric, spot);
  }
  return out;
}

core::Result<GpuSet> visible_gpus(const Machine& machine, const Environment& own) {
  const auto set = own.find("CUDA_VISIBLE_DEVICES");
  if (set == own.end())
    return machine.gpus.size() >= kMostGpus ? ~GpuSet{0} : bit_of(machine.gpus.size()) - 1;
  GpuSet out = 0;
  for (const std::string& word : split(set->second, ",")) {
    const std::string name(trim(word));
    if (name.empty()) continue;
    std::size_t found = machine.gpus.size();
    for (std::size_t i = 0; i < machine.gpus.size() && i < kMostGpus; ++i) {
      const Gpu& gpu = machine.gpus[i];
      if (name == std::to_string(gpu.number) || (name.starts_with("GPU-") && gpu.uuid.starts_with(name)))
        found = i;
    }
    if (found == machine.gpus.size()) {
      return core::invalid_argument(
          fmt::format("CUDA_VISIBLE_DEVICES={}: {} is no GPU of this machine", set->second, name));
    }
    out |= bit_of(found);
  }
  return out;
}

}  // namespace regroup::launcher
