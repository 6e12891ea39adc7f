// Hosts with equal machines (except for the uuids of their GPUs) share one Machine, so that each is
// scored only once.
#include "launcher/placement/cluster_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "launcher/placement/rank_environment.h"
#include "launcher/topology/load_fabric.h"
#include "launcher/topology/load_machine.h"
#include "launcher/topology/machine_json.h"
#include "launcher/topology/read_topology.h"

namespace regroup::placement {
namespace {

using base::Result;
using base::Status;

bool wants_devices(const spec::JobSpec& spec) {
  const spec::MapBy& map = spec.mapping.map;
  return spec.mapping.packing || spec.mapping.gpus > 0 ||
         (map.kind == spec::MapBy::Kind::kDistance && !map.device.empty());
}

bool shows_machine(const spec::JobSpec& spec) {
  return spec.display.map || spec.display.topology || spec.display.bindings;
}

bool asks_for_binding(const spec::BindTo& bind) {
  return bind.kind != spec::BindTo::Kind::kDefault && bind.kind != spec::BindTo::Kind::kNone;
}

// All hosts of a job: their distinct machines, and what belongs to one host only.
struct ClusterView {
  topology::Fabric fabric;
  std::vector<HostShare> shares;
  std::vector<HostDevices> devices;
  std::vector<std::uint32_t> quotas;
  std::vector<std::map<std::uint32_t, std::string>> claimed;  // HostInventory::claimed of each host
  Status unknown;                                             // why a host's processors are unknown
};

class Machines {
 public:
  explicit Machines(topology::Fabric& fabric) : fabric_(fabric) {}

  std::uint32_t add(topology::Machine machine) {
    for (topology::Gpu& gpu : machine.gpus) gpu.uuid.clear();
    machine.name.clear();
    const auto [at, added] = known_.try_emplace(
        topology::machine_to_json(machine), static_cast<std::uint32_t>(fabric_.machines.size()));
    if (added) fabric_.machines.push_back(std::move(machine));
    return at->second;
  }

 private:
  topology::Fabric& fabric_;
  std::map<std::string, std::uint32_t> known_;
};

Status no_gpu(const spec::JobSpec& spec, const ClusterHost& host, bool alone) {
  const std::string& path = spec.mapping.machine;
  const std::string where = alone ? "this machine" : "host " + host.name;
  return base::invalid_argument(
      fmt::format("--placement: {} has no GPU", path.empty() ? where : path));
}

// Connects the hosts to switches as --fabric says, else all to one switch.
Status attach_to_switches(const spec::JobSpec& spec, topology::Fabric& fabric) {
  if (spec.mapping.fabric.empty()) {
    fabric.nodes.push_back({.name = "network"});
    for (topology::FabricHost& host : fabric.hosts) host.leaf = 0;
    return {};
  }
  REGROUP_ASSIGN_OR_RETURN(auto known,
                           topology::load_fabric(spec.mapping.fabric, topology::Machine()));
  fabric.nodes = std::move(known.nodes);
  std::map<std::string, const topology::FabricHost*> by_name;
  for (const topology::FabricHost& host : known.hosts) by_name[host.name] = &host;
  for (topology::FabricHost& host : fabric.hosts) {
    const auto found = by_name.find(host.name);
    if (found == by_name.end())
      return base::invalid_argument(
          fmt::format("--fabric {}: does not list host {}", spec.mapping.fabric, host.name));
    host.leaf = found->second->leaf;
    host.nvlink = found->second->nvlink;
  }
  return {};
}

Result<ClusterView> cluster_view_of(const spec::JobSpec& spec, std::vector<ClusterHost> hosts,
                                    bool devices) {
  ClusterView out;
  Machines machines(out.fabric);
  bool any_gpu = false;
  for (std::uint32_t i = 0; i < hosts.size(); ++i) {
    ClusterHost& host = hosts[i];
    HostInventory inventory;
    if (host.inventory.ok()) {
      inventory = std::move(*host.inventory);
    } else if (devices) {
      return host.inventory.status();
    } else if (out.unknown.ok()) {
      out.unknown = host.inventory.status();
    }
    any_gpu = any_gpu || !inventory.machine.gpus.empty();
    out.quotas.push_back(inventory.quota);
    HostDevices& own = out.devices.emplace_back();
    for (std::uint32_t gpu = 0; gpu < inventory.machine.gpus.size(); ++gpu) {
      own.uuids.push_back(inventory.machine.gpus[gpu].uuid);
      const bool others = inventory.claimed.contains(gpu);
      own.claims.push_back(others ? "" : claim_name(inventory.machine.gpus[gpu]));
    }
    const GpuSet idle = idle_gpus(inventory);
    out.claimed.push_back(std::move(inventory.claimed));
    own.nics = std::move(inventory.nics);
    out.shares.push_back({i, idle, std::move(inventory.cpus), host.slots, host.max_slots});
    out.fabric.hosts.push_back({host.name, machines.add(std::move(inventory.machine)),
                                topology::kNoPart, topology::kNoPart});
  }
  if (devices && !any_gpu) return no_gpu(spec, hosts.front(), hosts.size() == 1);
  REGROUP_RETURN_IF_ERROR(attach_to_switches(spec, out.fabric));
  return out;
}

// Adds GPUs that other jobs have claimed: with --oversubscribe, if the free ones do not suffice.
void share_claimed(ClusterView& cluster) {
  for (HostShare& share : cluster.shares) {
    for (const auto& [gpu, by] : cluster.claimed[share.host]) share.free |= bit_of(gpu);
  }
}

std::string gpu_of(const ClusterView& cluster, std::uint32_t host, std::uint32_t gpu) {
  const topology::Machine& machine = cluster.fabric.machines[cluster.fabric.hosts[host].machine];
  return fmt::format("GPU {} of {}", machine.gpus[gpu].number, cluster.fabric.hosts[host].name);
}

// "; not free: GPU 0 of node1, which job 0a1b2c3d (process 4711) has".
std::string claims_text(const ClusterView& cluster) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> out;
  for (std::uint32_t host = 0; host < cluster.claimed.size(); ++host) {
    for (const auto& [gpu, by] : cluster.claimed[host])
      out.push_back(fmt::format("{}, used by {}", gpu_of(cluster, host, gpu), by));
  }
  if (out.size() > kShown) out.resize(kShown), out.emplace_back("...");
  return fmt::format(
      "; not free: {} (--oversubscribe shares them, REGROUP_GPU_CLAIMS=none ignores other jobs)",
      fmt::join(out, ", "));
}

// True: a description of the processors exists but cannot be read.
bool is_unread(const Status& unknown) {
  return unknown.code() == base::Code::kInvalidArgument ||
         unknown.code() == base::Code::kDeadlineExceeded;
}

std::vector<std::string> shared_gpus(const ClusterView& cluster,
                                     const std::vector<DeviceSlot>& ranks) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
  std::vector<std::string> out;
  for (const DeviceSlot& slot : ranks) {
    for (const std::uint32_t gpu : slot.gpus) {
      const auto found = cluster.claimed[slot.host].find(gpu);
      if (found == cluster.claimed[slot.host].end() || !seen.emplace(slot.host, gpu).second)
        continue;
      out.push_back(
          fmt::format("{} is shared with {}", gpu_of(cluster, slot.host, gpu), found->second));
    }
  }
  return out;
}

}  // namespace

void keep_granted(const spec::HostRequest& granted, HostInventory& inventory) {
  std::vector<int> cpus;
  for (const int cpu : inventory.cpus) {
    if (std::ranges::find(granted.cores, cpu) != granted.cores.end()) cpus.push_back(cpu);
  }
  if (!cpus.empty()) inventory.cpus = std::move(cpus);
  if (granted.gpus.empty() || count_of(inventory.free) <= granted.gpus.size()) return;
  GpuSet kept = 0;
  for (std::uint32_t i = 0; i < inventory.machine.gpus.size() && i < kMostGpus; ++i) {
    const topology::Gpu& gpu = inventory.machine.gpus[i];
    const bool named = std::ranges::any_of(granted.gpus, [&](const std::string& name) {
      return name == gpu.uuid || name == std::to_string(gpu.number);
    });
    if (named) kept |= bit_of(i);
  }
  inventory.free &= kept;
  // Claims of GPUs that were not granted are irrelevant.
  std::erase_if(inventory.claimed,
                [&](const auto& claim) { return (kept & bit_of(claim.first)) == 0; });
}

std::optional<InventoryOptions> inventory_options(const spec::JobSpec& spec) {
  const JobRequest request = job_request(spec, {1}, {});
  if (wants_devices(spec))
    return InventoryOptions{true, spec.mapping.machine, process::claim_scope(spec.environment, "")};
  const auto policy = policy_of(request.ranks);
  const bool over_objects = spec.mapping.map.span ||
                            spec.mapping.rank.kind == spec::RankBy::Kind::kSpan ||
                            spec.mapping.map.kind == spec::MapBy::Kind::kPerUnit;
  if ((policy.ok() && needs_topology(*policy)) || over_objects || shows_machine(spec))
    return InventoryOptions{};
  return std::nullopt;
}

JobRequest job_request(const spec::JobSpec& spec, const std::vector<std::uint32_t>& counts,
                       const MemberNeeds& needs) {
  JobRequest out;
  out.ranks = {spec.mapping, spec.compat, counts, spec.oversubscribe};
  if (spec.elastic && !asks_for_binding(spec.mapping.bind) && !wants_devices(spec))
    out.ranks.why_unbound = "members of an elastic job are bound only with --bind-to";
  for (const spec::AppRequest& app : spec.apps) out.per_host.push_back(app.per_node.value_or(0));
  // -N counts members on hosts; no object within a host is named.
  spec::MapBy& map = out.ranks.mapping.map;
  const bool by_host = std::ranges::any_of(out.per_host, [](auto most) { return most != 0; });
  if (by_host && map.kind == spec::MapBy::Kind::kDefault && spec.mapping.cpu_set.empty() &&
      spec.compat == spec::Compat::kOpenMpi)
    map.kind = spec::MapBy::Kind::kSlot;
  out.hosts = spec.hosts_of_apps;
  out.roles = needs.roles;
  if (!wants_devices(spec)) return out;
  out.gpus = needs.gpus;
  if (out.gpus.empty()) out.gpus.assign(counts.size(), std::max(1U, spec.mapping.gpus));
  out.cores = needs.cores;
  out.devices.packing = spec.mapping.packing.value_or(spec::Packing::kBest);
  out.devices.label = spec.mapping.gpu_label;
  if (spec.elastic) {
    out.devices.min_sets = std::max(1U, spec.min);
    out.devices.last_goes_first = true;
  }
  return out;
}

Result<PlacedJob> place_on_cluster(const spec::JobSpec& spec, std::vector<ClusterHost> hosts,
                                   JobRequest request) {
  const bool devices = request.on_devices();
  REGROUP_ASSIGN_OR_RETURN(auto cluster, cluster_view_of(spec, std::move(hosts), devices));
  if (!cluster.unknown.ok()) {
    const spec::BindTo& bind = spec.mapping.bind;
    if ((asks_for_binding(bind) && !bind.if_supported) || spec.display.topology)
      return base::invalid_argument(
          fmt::format("--bind-to, --display topo: {}", cluster.unknown.message()));
    request.ranks.why_unbound = cluster.unknown.message();
  }
  auto placed = place_job(cluster.fabric, cluster.shares, request);
  const bool claimed =
      std::ranges::any_of(cluster.claimed, [](const auto& host) { return !host.empty(); });
  if (!placed.ok() && claimed && spec.oversubscribe) {
    share_claimed(cluster);
    placed = place_job(cluster.fabric, cluster.shares, request);
  }
  if (!placed.ok() && devices)
    return Status(placed.code(), fmt::format("--placement: {}{}", placed.status().message(),
                                             claimed ? claims_text(cluster) : ""));
  if (!placed.ok()) return placed.status();
  PlacedJob out;
  if (devices)
    // NCCL gets the file if it could not detect its contents itself.
    out.environments = rank_environments(cluster.fabric, placed->devices,
                                         topology::nccl_topology_file(spec.mapping.machine),
                                         spec.environment, cluster.devices);
  for (const HostShare& share : cluster.shares) {
    topology::Topology usable = usable_processors(cluster.fabric, share);
    if (!usable.threads.empty()) out.topologies.resize(share.host + std::size_t{1});
    if (!usable.threads.empty()) out.topologies.back() = std::move(usable);
  }
  out.warnings = shared_gpus(cluster, placed->devices);
  if (is_unread(cluster.unknown))
    out.warnings.push_back(cluster.unknown.message() + ": ranks are not bound");
  const bool read = !out.topologies.empty() || is_unread(cluster.unknown);
  std::string passed_over = read ? topology::passed_over_by_hwloc(spec.environment) : "";
  if (!passed_over.empty()) out.warnings.push_back(std::move(passed_over));
  out.placement = std::move(*placed);
  out.quotas = std::move(cluster.quotas);
  return out;
}

namespace {

// The number of members for which the hosts have the processors of PE=N, at least 1.
std::uint32_t members_of_pe(const ClusterView& cluster, const spec::MapBy& map) {
  const spec::Unit cpu =
      map.hwthread_cpus.value_or(false) ? spec::Unit::kHwThread : spec::Unit::kCore;
  std::size_t out = 0;
  for (const HostShare& share : cluster.shares)
    out += topology::parts_of(usable_processors(cluster.fabric, share), cpu).size() / map.cpus;
  return std::max(1U, static_cast<std::uint32_t>(out));
}

}  // namespace

bool counts_objects(const spec::JobSpec& spec) {
  using Kind = spec::MapBy::Kind;
  const spec::MapBy& map = spec.mapping.map;
  const bool dealt =
      map.kind == Kind::kDefault || map.kind == Kind::kSlot || map.kind == Kind::kUnit;
  const bool by_cpus = dealt && map.cpus > 1 && spec.mapping.cpu_set.empty() &&
                       spec.compat == spec::Compat::kOpenMpi;
  return spec.max == 0 && (map.kind == Kind::kPerUnit || by_cpus);
}

Result<spec::MemberRange> members_of(const spec::JobSpec& spec,
                                     const std::vector<ClusterHost>& hosts) {
  if (!counts_objects(spec)) return spec::MemberRange{spec.min, spec.max};
  REGROUP_ASSIGN_OR_RETURN(auto cluster, cluster_view_of(spec, hosts, false));
  const spec::MapBy& map = spec.mapping.map;
  const bool ppr = map.kind == spec::MapBy::Kind::kPerUnit;
  if (!cluster.unknown.ok() && !ppr) return spec::MemberRange{spec.min, spec.max};
  if (!cluster.unknown.ok()) return cluster.unknown;
  const std::uint32_t members = ppr ? members_of_ppr(cluster.fabric, cluster.shares, spec.mapping)
                                    : members_of_pe(cluster, map);
  if (members > 0) return spec::MemberRange{members, members};
  return base::invalid_argument(
      fmt::format("--map-by ppr:{}:{}: {} none", map.per_unit, spec::unit_name(map.unit),
                  hosts.size() == 1 ? "this machine has" : "the hosts have"));
}

}  // namespace regroup::placement
