// GPUs determine a member's host and the cores near it; --bind-to determines to how many of these
// it is bound.
#include "launcher/placement/gpu_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "launcher/placement/device_ranks.h"
#include "launcher/placement/explicit_places.h"

namespace regroup::placement {
namespace {

using base::invalid_argument;
using base::Result;
using base::Status;
using Map = spec::MapBy::Kind;

// Refuses options of mpirun that cannot be combined with GPUs.
Status check_mapping(const spec::Mapping& mapping) {
  const spec::MapBy& map = mapping.map;
  const bool per_host = map.kind == Map::kPerUnit && map.unit == spec::Unit::kNode;
  const bool plain =
      map.kind == Map::kUnit && (map.unit <= spec::Unit::kCore || map.unit == spec::Unit::kNode);
  if (map.kind != Map::kDefault && map.kind != Map::kSlot && map.kind != Map::kDistance &&
      !per_host && !plain) {
    return invalid_argument(
        "--map-by of members with GPUs: expected slot, core, node, ppr:N:node or device=NAME");
  }
  if (mapping.bind.kind == spec::BindTo::Kind::kCpuList || !mapping.cpu_set.empty())
    return invalid_argument(
        "members with GPUs are bound to cores near them: remove the processor list");
  return {};
}

std::uint32_t of_program(const std::vector<std::uint32_t>& list, std::uint32_t program) {
  return program < list.size() ? list[program] : 0;
}

struct Members {
  std::vector<std::uint32_t> program;  // of each rank
  // Number of GPUs per member -> ranks.
  std::map<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> by_need;
};

Members members_of_job(const JobRequest& request) {
  Members out;
  for (std::uint32_t program = 0; program < request.ranks.counts.size(); ++program) {
    for (std::uint32_t i = 0; i < request.ranks.counts[program]; ++i) {
      out.by_need[of_program(request.gpus, program)].push_back(
          static_cast<std::uint32_t>(out.program.size()));
      out.program.push_back(program);
    }
  }
  return out;
}

DeviceRequest devices_of(const JobRequest& request, std::uint32_t gpus, std::size_t members,
                         bool several) {
  const spec::MapBy& map = request.ranks.mapping.map;
  DeviceRequest out = request.devices;
  out.servers.clear();
  out.set.gpus = gpus;
  out.sets = static_cast<std::uint32_t>(members) / std::max(1U, out.set.ranks);
  if (out.last_goes_first) out.min_sets = std::min(out.min_sets, out.sets);
  if (map.kind == Map::kPerUnit) out.sets_per_host = map.per_unit;
  for (const std::uint32_t most : request.per_host) {
    if (most != 0)
      out.sets_per_host = out.sets_per_host == 0 ? most : std::min(out.sets_per_host, most);
  }
  if (map.kind == Map::kDistance) out.device = map.device;
  if (map.kind == Map::kUnit && map.unit == spec::Unit::kNode) {
    out.by_node = true;
    if (out.packing == spec::Packing::kBest) out.packing = spec::Packing::kSpread;
  }
  out.heed_slots = several && !request.ranks.oversubscribe;
  return out;
}

void take_away(const std::vector<DeviceSlot>& ranks, std::vector<HostShare>& left) {
  for (const DeviceSlot& slot : ranks) {
    const auto share = std::find_if(left.begin(), left.end(),
                                    [&](const HostShare& each) { return each.host == slot.host; });
    for (const std::uint32_t gpu : slot.gpus) share->free &= ~bit_of(gpu);
    if (share->slots > 0 && --share->slots == 0) share->free = 0;  // since 0 slots means unlimited
  }
}

Status choose_gpus(const topology::Fabric& fabric, const std::vector<HostShare>& hosts,
                   const JobRequest& request, const Members& members, JobPlacement& out) {
  std::vector<HostShare> left = hosts;
  std::uint32_t sets = 0;
  const bool one_ring = members.by_need.size() - members.by_need.count(0) == 1;
  for (const auto& [gpus, ranks] : members.by_need) {
    if (gpus == 0) continue;
    const DeviceRequest wanted = devices_of(request, gpus, ranks.size(), hosts.size() > 1);
    REGROUP_ASSIGN_OR_RETURN(auto chosen, choose_devices(fabric, left, wanted));
    take_away(chosen.ranks, left);
    if (sets == 0 || chosen.predicted.gbytes < out.predicted.gbytes)
      out.predicted = chosen.predicted;
    if (one_ring) out.shrink_order = std::move(chosen.shrink_order);
    if (!one_ring)
      out.why.push_back(fmt::format("{} members with {} GPUs each:", ranks.size(), gpus));
    out.why.insert(out.why.end(), chosen.why.begin(), chosen.why.end());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      chosen.ranks[i].set += sets;
      out.devices[ranks[i]] = std::move(chosen.ranks[i]);
    }
    sets += wanted.sets;
  }
  return {};
}

void place_servers(const topology::Fabric& fabric, const std::vector<HostShare>& hosts,
                   const JobRequest& request, const Members& members, JobPlacement& out) {
  const auto found = members.by_need.find(0);
  if (found == members.by_need.end()) return;
  std::vector<ServerRole> servers;
  std::vector<DeviceSlot> slots;
  for (const std::uint32_t rank : found->second) {
    const std::uint32_t program = members.program[rank];
    const std::string name = program < request.roles.size() ? request.roles[program] : "server";
    if (servers.empty() || servers.back().name != name) servers.push_back({name, 0});
    ++servers.back().count;
  }
  for (const auto& [gpus, ranks] : members.by_need) {
    for (const std::uint32_t rank : ranks) {
      if (gpus > 0) slots.push_back(out.devices[rank]);
    }
  }
  std::size_t next = slots.size();
  add_servers(fabric, hosts, servers, slots);
  for (const std::uint32_t rank : found->second) out.devices[rank] = std::move(slots[next++]);
}

// The cores that each rank requests; 0: none.
std::vector<std::uint32_t> cores_wanted(const JobRequest& request, const Members& members) {
  const ResourceSet& set = request.devices.set;
  std::vector<std::uint32_t> out;
  for (const std::uint32_t program : members.program) {
    const std::uint32_t per_member = request.ranks.mapping.map.cpus;
    const std::uint32_t requested =
        per_member > 0 ? per_member : of_program(request.cores, program);
    const bool shared = requested == 0 && set.cpus > 0 && of_program(request.gpus, program) > 0;
    out.push_back(shared ? std::max(1U, set.cpus / std::max(1U, set.ranks)) : requested);
  }
  return out;
}

// Chooses the best GPUs for the collectives; if these do not have enough cores near them, the best
// of the others.
Status choose_with_cores(const topology::Fabric& fabric, const std::vector<HostShare>& hosts,
                         const JobRequest& request, const Members& members, JobPlacement& out) {
  constexpr int kMostRounds = 64;  // each round excludes at least one NUMA node
  const std::vector<std::uint32_t> cores = cores_wanted(request, members);
  const JobPlacement blank = out;
  std::vector<HostShare> left = hosts;
  std::vector<std::string> left_out;
  Status first;
  std::uint32_t least = 0;  // number of cores that every member with a GPU requests
  for (std::size_t rank = 0; rank < cores.size(); ++rank) {
    if (of_program(request.gpus, members.program[rank]) > 0)
      least = least == 0 ? cores[rank] : std::min(least, cores[rank]);
  }
  if (const std::size_t gpus = least == 0 ? 0 : leave_small_nodes(fabric, least, left); gpus > 0)
    left_out.push_back(
        fmt::format("GPUs not used: {}, with fewer than {} cores near them", gpus, least));
  for (int round = 0; round < kMostRounds; ++round) {
    out = blank;
    out.devices.assign(members.program.size(), {});
    const Status chosen = choose_gpus(fabric, left, request, members, out);
    if (!chosen.ok()) {
      if (!first.ok() || left_out.empty()) return first.ok() ? chosen : first;
      return {chosen.code(), fmt::format("{} ({})", chosen.message(), left_out.front())};
    }
    place_servers(fabric, hosts, request, members, out);
    settle_servers(fabric, hosts, cores, out.devices);
    const Status fits = give_cpus(fabric, hosts, cores, out.devices);
    if (fits.ok()) {
      out.why.insert(out.why.end(), left_out.begin(), left_out.end());
      return {};
    }
    if (first.ok()) first = fits;
    const auto crowded = leave_crowded_nodes(fabric, cores, out.devices, left);
    if (crowded.empty()) break;
    left_out.insert(left_out.end(), crowded.begin(), crowded.end());
  }
  return first;
}

// The cores near a member's GPU to which it is bound.
topology::ThreadSet bound_to(const topology::Topology& topology, const spec::BindTo& bind,
                             const topology::ThreadSet& near) {
  if (bind.kind != spec::BindTo::Kind::kUnit || near.empty()) return near;
  const topology::HwThread& first = topology.threads[near.front()];
  if (bind.unit == spec::Unit::kHwThread) return {near.front()};
  const bool narrow = bind.unit <= spec::Unit::kCore;
  topology::ThreadSet out;
  for (std::uint32_t i = 0; i < topology.threads.size(); ++i) {
    if (narrow && !std::binary_search(near.begin(), near.end(), i)) continue;
    if (bind.unit == spec::Unit::kNode ||
        topology.threads[i].part(bind.unit) == first.part(bind.unit))
      out.push_back(i);
  }
  return out;
}

Slot slot_of(const topology::Fabric& fabric, const DeviceSlot& device) {
  const topology::Machine& machine = fabric.machines[fabric.hosts[device.host].machine];
  std::vector<std::string> gpus;
  for (const std::uint32_t gpu : device.gpus)
    gpus.push_back(fmt::format("GPU {}", machine.gpus[gpu].number));
  return {
      {}, {}, gpus.empty() ? device.role : fmt::format("{}", fmt::join(gpus, ", ")), device.why};
}

// Refuses a binding if two members would share cores that were requested for one.
Status check_shared(const topology::Fabric& fabric, const JobRequest& request,
                    const JobPlacement& placement) {
  const spec::BindTo& bind = request.ranks.mapping.bind;
  const bool own = bind.kind == spec::BindTo::Kind::kUnit && bind.unit <= spec::Unit::kCore &&
                   !bind.overload_allowed;
  std::set<std::pair<std::uint32_t, std::vector<int>>> seen;
  for (std::size_t rank = 0; own && rank < placement.slots.size(); ++rank) {
    const Slot& slot = placement.slots[rank];
    if (slot.cpus.empty() || seen.emplace(placement.hosts[rank], slot.cpus).second) continue;
    return base::resource_exhausted(fmt::format(
        "--bind-to {0}: {1} has fewer cores near {2} than members; --bind-to "
        "{0}:overload-allowed permits sharing",
        spec::unit_name(bind.unit), fabric.hosts[placement.hosts[rank]].name, slot.object));
  }
  return {};
}

Status bind_members(const topology::Fabric& fabric, const std::vector<HostShare>& hosts,
                    const JobRequest& request, JobPlacement& out) {
  const spec::BindTo& bind = request.ranks.mapping.bind;
  std::map<std::uint32_t, const HostShare*> shares;
  for (const HostShare& share : hosts) shares.try_emplace(share.host, &share);
  std::map<std::uint32_t, topology::Topology> usable;  // host -> its usable processors
  for (DeviceSlot& device : out.devices) {
    out.hosts.push_back(device.host);
    Slot& slot = out.slots.emplace_back(slot_of(fabric, device));
    const auto [known, added] = usable.try_emplace(device.host);
    if (added) known->second = usable_processors(fabric, *shares.at(device.host));
    const topology::Topology& topology = known->second;
    if (!out.policy.bound) device.cpus.clear();
    slot.cpus = device.cpus;
    slot.threads = threads_with(topology, device.cpus);
    if (bind.kind == spec::BindTo::Kind::kUnit && slot.threads.empty() && !bind.if_supported)
      return invalid_argument(fmt::format("--bind-to {}: the processors of {} near {} are unknown",
                                          spec::unit_name(bind.unit),
                                          fabric.hosts[device.host].name, slot.object));
    if (slot.threads.empty() || bind.kind != spec::BindTo::Kind::kUnit) continue;
    if (request.ranks.mapping.map.cpus == 0) slot.threads = bound_to(topology, bind, slot.threads);
    slot.cpus = device.cpus = topology::os_numbers(topology, slot.threads);
  }
  return check_shared(fabric, request, out);
}

// GPUs are chosen among all hosts of the job.
Status check_hosts(const topology::Fabric& fabric, const std::vector<HostShare>& hosts,
                   const JobRequest& request) {
  for (std::size_t program = 0; program < request.hosts.size(); ++program) {
    const std::vector<std::string>& only = request.hosts[program];
    if (only.empty()) continue;
    for (const HostShare& host : hosts) {
      const std::string& name = fabric.hosts[host.host].name;
      if (std::ranges::find(only, name) != only.end()) continue;
      return invalid_argument(fmt::format(
          "-H of program {}: host {} of the job is not among its hosts, and members with GPUs are "
          "placed on all hosts of the job; give every program the same -H",
          program, name));
    }
  }
  return {};
}

}  // namespace

Result<JobPlacement> place_by_gpus(const topology::Fabric& fabric,
                                   const std::vector<HostShare>& hosts, const JobRequest& request) {
  const spec::Mapping& mapping = request.ranks.mapping;
  REGROUP_RETURN_IF_ERROR(check_mapping(mapping));
  REGROUP_RETURN_IF_ERROR(check_hosts(fabric, hosts, request));
  const Members members = members_of_job(request);
  JobPlacement out;
  out.policy.map = mapping.map;
  out.policy.map.kind = Map::kDistance;
  out.policy.bind_unit = mapping.bind.unit;
  out.policy.bind_asked = mapping.bind.kind == spec::BindTo::Kind::kUnit;
  out.policy.bound = mapping.bind.kind != spec::BindTo::Kind::kNone;
  if (!out.policy.bound) out.policy.why_unbound = "--bind-to none";
  out.policy.hwthreads =
      mapping.bind.kind == spec::BindTo::Kind::kUnit && mapping.bind.unit == spec::Unit::kHwThread;
  REGROUP_RETURN_IF_ERROR(choose_with_cores(fabric, hosts, request, members, out));
  REGROUP_RETURN_IF_ERROR(bind_members(fabric, hosts, request, out));
  return out;
}

}  // namespace regroup::placement
