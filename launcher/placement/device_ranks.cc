// A GPU's rank gets the nearest NICs and cores of its NUMA node; servers go where NICs are idle.
#include "launcher/placement/device_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <tuple>

#include "launcher/topology/paths.h"

namespace regroup::placement {
namespace {

using Cores = std::vector<std::vector<int>>;  // processors of each

// Whole cores of a NUMA node (of all, if it is not known) that the job may use.
Cores cores_of(const topology::Machine& machine, std::uint32_t numa,
               const std::vector<int>& allowed) {
  std::map<int, std::uint32_t> core_of;
  for (const topology::HwThread& thread : machine.processors.threads)
    core_of[thread.os] = thread.part(spec::Unit::kCore);
  std::map<std::pair<std::size_t, std::uint32_t>, std::vector<int>> cores;
  for (std::size_t i = 0; i < machine.numas.size(); ++i) {
    if (numa != topology::kNoPart && i != numa) continue;
    for (const int cpu : machine.numas[i].cpus) {
      if (!allowed.empty() && !std::binary_search(allowed.begin(), allowed.end(), cpu)) continue;
      const auto at = core_of.find(cpu);
      cores[{i, at == core_of.end() ? static_cast<std::uint32_t>(cpu) : at->second}].push_back(cpu);
    }
  }
  Cores out;
  for (auto& [where, cpus] : cores) out.push_back(std::move(cpus));
  return out;
}

// Caches cores_of() for equal hosts.
class NearCores {
 public:
  explicit NearCores(const topology::Fabric& fabric) : fabric_(fabric) {}

  const Cores& of(const HostShare& share, std::uint32_t numa) {
    const std::uint32_t machine = fabric_.hosts[share.host].machine;
    const auto [at, added] = known_.try_emplace({machine, numa, share.cpus});
    if (added) at->second = cores_of(fabric_.machines[machine], numa, share.cpus);
    return at->second;
  }

 private:
  const topology::Fabric& fabric_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::vector<int>>, Cores> known_;
};

const HostShare& share_of(const std::vector<HostShare>& allocation, std::uint32_t host) {
  return *std::find_if(allocation.begin(), allocation.end(),
                       [host](const HostShare& share) { return share.host == host; });
}

// Cores [from, to) of `cores`, as processors.
std::vector<int> cut(const Cores& cores, std::size_t from, std::size_t to) {
  std::vector<int> out;
  for (std::size_t i = from; i < to; ++i) out.insert(out.end(), cores[i].begin(), cores[i].end());
  std::sort(out.begin(), out.end());
  return out;
}

// Takes one GPU of each NIC in turn.
std::vector<std::uint32_t> dealt_over_nics(const topology::Machine& machine,
                                           const std::vector<std::uint32_t>& gpus) {
  std::map<std::vector<std::uint32_t>, std::vector<std::uint32_t>> by_nic;
  for (const std::uint32_t gpu : gpus) by_nic[nearest_nics(machine, gpu)].push_back(gpu);
  std::vector<std::uint32_t> out;
  for (std::size_t turn = 0; out.size() < gpus.size(); ++turn) {
    for (const auto& [nics, list] : by_nic) {
      if (turn < list.size()) out.push_back(list[turn]);
    }
  }
  return out;
}

std::string where_text(const topology::Machine& machine, const DeviceSlot& slot) {
  std::string out;
  for (const std::uint32_t gpu : slot.gpus) out += fmt::format(" GPU {}", machine.gpus[gpu].number);
  if (!slot.nics.empty() && !slot.gpus.empty()) {
    const topology::Path& path =
        machine.path(slot.gpus.front(), machine.nic_end(slot.nics.front()));
    out += fmt::format(", nearest NIC {} ({})", machine.nics[slot.nics.front()].name,
                       topology::path_class_name(path.cls));
  }
  if (slot.numa != topology::kNoPart)
    out += fmt::format(", NUMA node {}", machine.numas[slot.numa].number);
  return out;
}

// By host and NUMA node.
std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::size_t>> ranks_near_nodes(
    const std::vector<DeviceSlot>& ranks) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::size_t>> out;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    out[{ranks[rank].host, ranks[rank].numa}].push_back(rank);
  return out;
}

}  // namespace

std::vector<std::uint32_t> ring_order(PlacementScorers& scorers, const HostPart& part,
                                      RingScope reach) {
  const RingPlan& plan = scorers.of_host(part.host).rings(part.gpus, reach);
  if (plan.rings.empty()) return members_of(part.gpus);
  std::vector<std::uint32_t> ends = plan.rings.front().ends;
  const auto gpus = static_cast<std::uint32_t>(scorers.machine_of(part.host).gpus.size());
  const auto nic =
      std::find_if(ends.begin(), ends.end(), [gpus](std::uint32_t end) { return end >= gpus; });
  const auto first = nic != ends.end() ? nic : std::min_element(ends.begin(), ends.end());
  std::rotate(ends.begin(), first, ends.end());
  const std::ptrdiff_t from = nic != ends.end() ? 0 : 1;
  if (ends.size() > 2 && ends[1] > ends.back()) std::reverse(ends.begin() + 1, ends.end());
  if (from == 0) ends.erase(ends.begin());
  return ends;
}

std::vector<std::uint32_t> nearest_nics(const topology::Machine& machine, std::uint32_t end) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t nic = 0; nic < machine.nics.size(); ++nic) {
    const topology::Path& here = machine.path(end, machine.nic_end(nic));
    if (here.cls == topology::PathClass::kDis) continue;
    if (!out.empty()) {
      const topology::Path& best = machine.path(end, machine.nic_end(out.front()));
      if (here.cls > best.cls || (here.cls == best.cls && here.gbytes < best.gbytes)) continue;
      if (here.cls < best.cls || here.gbytes > best.gbytes) out.clear();
    }
    out.push_back(nic);
  }
  return out;
}

std::vector<DeviceSlot> ranks_of(PlacementScorers& scorers, const std::vector<HostPart>& parts,
                                 const ResourceSet& set, RingScope reach, bool near_nics) {
  std::vector<DeviceSlot> out;
  std::uint32_t number = 0;
  for (const HostPart& part : parts) {
    const topology::Machine& machine = scorers.machine_of(part.host);
    std::vector<std::uint32_t> order = ring_order(scorers, part, reach);
    if (near_nics) order = dealt_over_nics(machine, order);
    for (std::size_t at = 0; at + set.gpus <= order.size(); at += set.gpus, ++number) {
      DeviceSlot slot;
      slot.host = part.host;
      slot.set = number;
      slot.gpus.assign(order.begin() + static_cast<std::ptrdiff_t>(at),
                       order.begin() + static_cast<std::ptrdiff_t>(at + set.gpus));
      slot.numa = machine.gpus[slot.gpus.front()].numa;
      slot.nics = nearest_nics(machine, slot.gpus.front());
      slot.why =
          fmt::format("{}:{}", scorers.fabric().hosts[part.host].name, where_text(machine, slot));
      for (std::uint32_t rank = 0; rank < set.ranks;
           ++rank) {  // near one of the set's GPUs, each in turn
        slot.numa = machine.gpus[slot.gpus[rank * set.gpus / set.ranks]].numa;
        out.push_back(slot);
      }
    }
  }
  return out;
}

std::vector<DeviceSlot> dealt_over_hosts(std::vector<DeviceSlot> ranks, std::uint32_t each) {
  std::map<std::uint32_t, std::vector<DeviceSlot>> by_host;
  for (DeviceSlot& slot : ranks) by_host[slot.host].push_back(std::move(slot));
  std::vector<DeviceSlot> out;
  for (std::size_t turn = 0; out.size() < ranks.size(); turn += each) {
    for (auto& [host, slots] : by_host) {
      for (std::size_t i = turn; i < std::min<std::size_t>(turn + each, slots.size()); ++i)
        out.push_back(std::move(slots[i]));
    }
  }
  return out;
}

void settle_servers(const topology::Fabric& fabric, const std::vector<HostShare>& allocation,
                    const std::vector<std::uint32_t>& cores, std::vector<DeviceSlot>& ranks) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> taken;
  for (const bool servers : {false, true}) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      DeviceSlot& slot = ranks[rank];
      if (slot.gpus.empty() != servers) continue;
      const topology::Machine& machine = fabric.machines[fabric.hosts[slot.host].machine];
      const auto left = [&](std::uint32_t numa) {
        const std::size_t all =
            cores_of(machine, numa, share_of(allocation, slot.host).cpus).size();
        return all - std::min(all, taken[{slot.host, numa}]);
      };
      if (servers && cores[rank] > 0 && !machine.numas.empty() && left(slot.numa) < cores[rank]) {
        for (std::uint32_t numa = 0; numa < machine.numas.size(); ++numa) {
          if (left(numa) > left(slot.numa)) slot.numa = numa;
        }
      }
      taken[{slot.host, slot.numa}] += cores[rank];
    }
  }
}

std::size_t leave_small_nodes(const topology::Fabric& fabric, std::uint32_t least,
                              std::vector<HostShare>& left) {
  std::size_t out = 0;
  NearCores near(fabric);
  for (HostShare& share : left) {
    const topology::Machine& machine = fabric.machines[fabric.hosts[share.host].machine];
    for (const std::uint32_t gpu : members_of(share.free)) {
      if (near.of(share, machine.gpus[gpu].numa).size() >= least) continue;
      share.free &= ~bit_of(gpu);
      ++out;
    }
  }
  return out;
}

std::vector<std::string> leave_crowded_nodes(const topology::Fabric& fabric,
                                             const std::vector<std::uint32_t>& cores,
                                             const std::vector<DeviceSlot>& ranks,
                                             std::vector<HostShare>& left) {
  std::vector<std::string> why;
  for (const auto& [where, near] : ranks_near_nodes(ranks)) {
    const auto [host, numa] = where;
    const auto share = std::ranges::find(left, host, &HostShare::host);
    if (share == left.end() || numa == topology::kNoPart) continue;
    const topology::Machine& machine = fabric.machines[fabric.hosts[host].machine];
    const std::size_t there = cores_of(machine, numa, share->cpus).size();
    std::size_t wanted = 0;
    GpuSet kept = 0;
    for (const bool moves : {false, true}) {  // a rank without a GPU keeps its NUMA node
      for (const std::size_t rank : near) {
        if (ranks[rank].gpus.empty() == moves) continue;
        wanted += cores[rank];
        for (const std::uint32_t gpu : ranks[rank].gpus) kept |= wanted <= there ? bit_of(gpu) : 0;
      }
    }
    if (wanted <= there) continue;
    for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
      if (machine.gpus[gpu].numa == numa && (kept & bit_of(gpu)) == 0) share->free &= ~bit_of(gpu);
    }
    why.push_back(fmt::format(
        "{}: of the GPUs near NUMA node {}, {} get a member: it has {} core{}",
        fabric.hosts[host].name, machine.numas[numa].number,
        kept == 0 ? "none" : std::to_string(std::popcount(kept)), there, there == 1 ? "" : "s"));
  }
  return why;
}

base::Status give_cpus(const topology::Fabric& fabric, const std::vector<HostShare>& allocation,
                       const std::vector<std::uint32_t>& cores, std::vector<DeviceSlot>& ranks) {
  NearCores known(fabric);
  for (const auto& [where, near] : ranks_near_nodes(ranks)) {
    const auto [host, numa] = where;
    const topology::Machine& machine = fabric.machines[fabric.hosts[host].machine];
    const Cores& there = known.of(share_of(allocation, host), numa);
    std::size_t wanted = 0, sharing = 0;
    for (const std::size_t rank : near) {
      wanted += cores[rank];
      sharing += cores[rank] == 0 ? 1 : 0;
    }
    if (wanted > there.size()) {
      return base::resource_exhausted(fmt::format(
          "{}: {} ranks near NUMA node {} need {} cores, it has {}; {}", fabric.hosts[host].name,
          near.size() - sharing,
          numa == topology::kNoPart ? std::string("?") : std::to_string(machine.numas[numa].number),
          wanted, there.size(),
          there.size() < near.size() - sharing
              ? "fewer than one for each"
              : fmt::format("the nearest fit is {} each", there.size() / (near.size() - sharing))));
    }
    const std::size_t each = sharing == 0 ? 0 : (there.size() - wanted) / sharing;
    std::size_t next = 0;
    for (const std::size_t rank : near) {
      const std::size_t mine = cores[rank] > 0 ? cores[rank] : each;
      ranks[rank].cpus = mine == 0 ? cut(there, 0, there.size()) : cut(there, next, next + mine);
      next += mine;
    }
  }
  return {};
}

void add_servers(const topology::Fabric& fabric, const std::vector<HostShare>& allocation,
                 const std::vector<ServerRole>& servers, std::vector<DeviceSlot>& ranks) {
  std::map<std::uint32_t, double> members;  // of each host
  for (const DeviceSlot& slot : ranks) ++members[slot.host];
  const auto all = static_cast<double>(ranks.size());
  std::uint32_t count = 0;
  for (const ServerRole& server : servers) count += server.count;
  std::map<std::uint32_t, double> load;  // each member sends each server its part of one unit
  for (const auto& [host, here] : members) load[host] = here;
  const auto busy = [&](std::uint32_t host, double more) {
    const topology::Machine& machine = fabric.machines[fabric.hosts[host].machine];
    double wire = 0;
    for (const topology::Nic& nic : machine.nics) wire += nic.up ? nic.gbits : 0;
    return (load[host] + more) / std::max(wire, 1.0);
  };
  for (const ServerRole& server : servers) {
    for (std::uint32_t i = 0; i < server.count; ++i) {
      std::uint32_t best = allocation.front().host;
      double least = 0;
      for (const HostShare& share : allocation) {
        const double own = members.contains(share.host) ? members[share.host] : 0;
        const double here = busy(share.host, (all - 2 * own) / count);
        if (share.host == allocation.front().host || here < least) least = here, best = share.host;
      }
      const double own = members.contains(best) ? members[best] : 0;
      load[best] += (all - 2 * own) / count;
      const topology::Machine& machine = fabric.machines[fabric.hosts[best].machine];
      DeviceSlot slot;
      slot.host = best;
      slot.set = topology::kNoPart;
      slot.role = server.name;
      for (std::uint32_t nic = 0; nic < machine.nics.size(); ++nic) {
        if (machine.nics[nic].up) slot.nics.push_back(nic);
      }
      if (!slot.nics.empty()) slot.numa = machine.nics[slot.nics.front()].numa;
      slot.why = fmt::format("{}: {} {} where it adds least to the job's busiest NIC",
                             fabric.hosts[best].name, server.name, i);
      ranks.push_back(std::move(slot));
    }
  }
}

}  // namespace regroup::placement
