// Hosts whose machines are alike share one, whatever their GPUs' names are: placement then works it out once.
#include "launcher/place/site.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "launcher/place/rank_environment.h"
#include "launcher/topo/load_fabric.h"
#include "launcher/topo/load_machine.h"
#include "launcher/topo/machine_json.h"
#include "launcher/topo/read_topology.h"

namespace regroup::launcher {
namespace {

using core::Result;
using core::Status;

bool wants_devices(const Options& options) {
  const MapBy& map = options.mapping.map;
  return options.mapping.packing || options.mapping.gpus > 0 ||
         (map.kind == MapBy::Kind::kDistance && !map.device.empty());
}

bool shows_machine(const Options& options) {
  return options.display.map || options.display.topology || options.display.bindings;
}

bool asks_for_binding(const BindTo& bind) {
  return bind.kind != BindTo::Kind::kDefault && bind.kind != BindTo::Kind::kNone;
}

// The machines of all hosts, each once, and what is told of a host alone.
struct Site {
  Fabric fabric;
  std::vector<HostShare> shares;
  std::vector<HostDevices> devices;
  std::vector<std::uint32_t> quotas;
  std::vector<std::map<std::uint32_t, std::string>> claimed;  // by host, HostSurvey::claimed
  Status unknown;                                             // why a host's processors are not known
};

class Machines {
 public:
  explicit Machines(Fabric& fabric) : fabric_(fabric) {}

  std::uint32_t add(Machine machine) {
    for (Gpu& gpu : machine.gpus) gpu.uuid.clear();
    machine.name.clear();
    const auto [at, added] =
        known_.try_emplace(machine_to_json(machine), static_cast<std::uint32_t>(fabric_.machines.size()));
    if (added) fabric_.machines.push_back(std::move(machine));
    return at->second;
  }

 private:
  Fabric& fabric_;
  std::map<std::string, std::uint32_t> known_;
};

Status no_gpu(const Options& options, const SiteHost& host, bool alone) {
  const std::string& path = options.mapping.machine;
  const std::string where = alone ? "this machine" : "host " + host.name;
  return core::invalid_argument(fmt::format("--placement: {} has no GPU", path.empty() ? where : path));
}

// Where hosts hang, as --fabric tells; without it all hang on one switch.
Status hang(const Options& options, Fabric& fabric) {
  if (options.mapping.fabric.empty()) {
    fabric.nodes.push_back({.name = "network"});
    for (FabricHost& host : fabric.hosts) host.leaf = 0;
    return {};
  }
  auto known = load_fabric(options.mapping.fabric, Machine());
  if (!known.ok()) return known.status();
  fabric.nodes = std::move(known->nodes);
  std::map<std::string, const FabricHost*> by_name;
  for (const FabricHost& host : known->hosts) by_name[host.name] = &host;
  for (FabricHost& host : fabric.hosts) {
    const auto found = by_name.find(host.name);
    if (found == by_name.end())
      return core::invalid_argument(
          fmt::format("--fabric {}: it does not say where host {} hangs", options.mapping.fabric, host.name));
    host.leaf = found->second->leaf;
    host.nvlink = found->second->nvlink;
  }
  return {};
}

Result<Site> site_of(const Options& options, std::vector<SiteHost> hosts, bool devices) {
  Site out;
  Machines machines(out.fabric);
  bool any_gpu = false;
  for (std::uint32_t i = 0; i < hosts.size(); ++i) {
    SiteHost& host = hosts[i];
    HostSurvey survey;
    if (host.survey.ok()) {
      survey = std::move(*host.survey);
    } else if (devices) {
      return host.survey.status();
    } else if (out.unknown.ok()) {
      out.unknown = host.survey.status();
    }
    any_gpu = any_gpu || !survey.machine.gpus.empty();
    out.quotas.push_back(survey.quota);
    HostDevices& own = out.devices.emplace_back();
    for (std::uint32_t gpu = 0; gpu < survey.machine.gpus.size(); ++gpu) {
      own.uuids.push_back(survey.machine.gpus[gpu].uuid);
      const bool others = survey.claimed.contains(gpu);
      own.claims.push_back(others ? "" : claim_name(survey.machine.gpus[gpu]));
    }
    const GpuSet idle = idle_gpus(survey);
    out.claimed.push_back(std::move(survey.claimed));
    own.nics = std::move(survey.nics);
    out.shares.push_back({i, idle, std::move(survey.cpus), host.slots, host.max_slots});
    out.fabric.hosts.push_back({host.name, machines.add(std::move(survey.machine)), kNoPart, kNoPart});
  }
  if (devices && !any_gpu) return no_gpu(options, hosts.front(), hosts.size() == 1);
  REGROUP_RETURN_IF_ERROR(hang(options, out.fabric));
  return out;
}

// With --oversubscribe, after those that nobody has.
void share_claimed(Site& site) {
  for (HostShare& share : site.shares) {
    for (const auto& [gpu, by] : site.claimed[share.host]) share.free |= bit_of(gpu);
  }
}

std::string gpu_of(const Site& site, std::uint32_t host, std::uint32_t gpu) {
  const Machine& machine = site.fabric.machines[site.fabric.hosts[host].machine];
  return fmt::format("GPU {} of {}", machine.gpus[gpu].number, site.fabric.hosts[host].name);
}

// "; not free: GPU 0 of node1, which job 0a1b2c3d (process 4711) has".
std::string who_has(const Site& site) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> out;
  for (std::uint32_t host = 0; host < site.claimed.size(); ++host) {
    for (const auto& [gpu, by] : site.claimed[host])
      out.push_back(fmt::format("{}, which {} has", gpu_of(site, host, gpu), by));
  }
  if (out.size() > kShown) out.resize(kShown), out.emplace_back("...");
  return fmt::format("; not free: {} (--oversubscribe shares them, REGROUP_GPU_CLAIMS=none does not ask)",
                     fmt::join(out, ", "));
}

// What should have told of the processors is there, and cannot be read.
bool is_unread(const Status& unknown) {
  return unknown.code() == core::Code::kInvalidArgument || unknown.code() == core::Code::kDeadlineExceeded;
}

std::vector<std::string> shared_gpus(const Site& site, const std::vector<DeviceSpot>& ranks) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> told;
  std::vector<std::string> out;
  for (const DeviceSpot& spot : ranks) {
    for (const std::uint32_t gpu : spot.gpus) {
      const auto found = site.claimed[spot.host].find(gpu);
      if (found == site.claimed[spot.host].end() || !told.emplace(spot.host, gpu).second) continue;
      out.push_back(fmt::format("{} is shared with {}", gpu_of(site, spot.host, gpu), found->second));
    }
  }
  return out;
}

}  // namespace

void keep_granted(const HostRequest& granted, HostSurvey& survey) {
  std::vector<int> cpus;
  for (const int cpu : survey.cpus) {
    if (std::ranges::find(granted.cores, cpu) != granted.cores.end()) cpus.push_back(cpu);
  }
  if (!cpus.empty()) survey.cpus = std::move(cpus);
  if (granted.gpus.empty() || count_of(survey.free) <= granted.gpus.size()) return;
  GpuSet kept = 0;
  for (std::uint32_t i = 0; i < survey.machine.gpus.size() && i < kMostGpus; ++i) {
    const Gpu& gpu = survey.machine.gpus[i];
    const bool named = std::ranges::any_of(granted.gpus, [&](const std::string& name) {
      return name == gpu.uuid || name == std::to_string(gpu.number);
    });
    if (named) kept |= bit_of(i);
  }
  survey.free &= kept;
  // Others may well have the rest: it is neither shared nor told of.
  std::erase_if(survey.claimed, [&](const auto& claim) { return (kept & bit_of(claim.first)) == 0; });
}

std::optional<SurveyOrder> survey_for(const Options& options, const MemberNeeds& needs) {
  const JobRequest request = job_request(options, {1}, needs);
  if (wants_devices(options))
    return SurveyOrder{true, options.mapping.machine, claim_scope(options.environment, "")};
  const auto policy = policy_of(request.ranks);
  const bool over_objects = options.mapping.map.span || options.mapping.map.kind == MapBy::Kind::kPerUnit;
  if ((policy.ok() && needs_topology(*policy)) || over_objects || shows_machine(options))
    return SurveyOrder{};
  return std::nullopt;
}

JobRequest job_request(const Options& options, const std::vector<std::uint32_t>& counts,
                       const MemberNeeds& needs) {
  JobRequest out;
  out.ranks = {options.mapping, options.compat, counts, options.oversubscribe};
  if (options.elastic && !asks_for_binding(options.mapping.bind) && !wants_devices(options))
    out.ranks.why_unbound = "members of an elastic job are bound where --bind-to says so";
  for (const AppRequest& app : options.apps) out.per_host.push_back(app.per_node.value_or(0));
  out.roles = needs.roles;
  if (!wants_devices(options)) return out;
  out.gpus = needs.gpus;
  if (out.gpus.empty()) out.gpus.assign(counts.size(), std::max(1U, options.mapping.gpus));
  out.cores = needs.cores;
  out.devices.packing = options.mapping.packing.value_or(Packing::kBest);
  out.devices.label = options.mapping.gpu_label;
  if (options.elastic) {
    out.devices.min_sets = std::max(1U, options.min);
    out.devices.last_goes_first = true;
  }
  return out;
}

Result<PlacedJob> place_on_site(const Options& options, std::vector<SiteHost> hosts, JobRequest request) {
  const bool devices = request.on_devices();
  auto site = site_of(options, std::move(hosts), devices);
  if (!site.ok()) return site.status();
  if (!site->unknown.ok()) {
    const BindTo& bind = options.mapping.bind;
    if ((asks_for_binding(bind) && !bind.if_supported) || options.display.topology)
      return Status(site->unknown.code(),
                    fmt::format("--bind-to, --display topo: {}", site->unknown.message()));
    request.ranks.why_unbound = site->unknown.message();
  }
  auto placed = place_job(site->fabric, site->shares, request);
  const bool claimed = std::ranges::any_of(site->claimed, [](const auto& host) { return !host.empty(); });
  if (!placed.ok() && claimed && options.oversubscribe) {
    share_claimed(*site);
    placed = place_job(site->fabric, site->shares, request);
  }
  if (!placed.ok() && devices)
    return Status(placed.code(),
                  fmt::format("--placement: {}{}", placed.status().message(), claimed ? who_has(*site) : ""));
  if (!placed.ok()) return placed.status();
  PlacedJob out;
  if (devices)
    // NCCL is given the file where it could not find out by itself what the file says.
    out.environments =
        rank_environments(site->fabric, placed->devices, nccl_topology_file(options.mapping.machine),
                          options.environment, site->devices);
  for (const HostShare& share : site->shares) {
    Topology usable = usable_processors(site->fabric, share);
    if (!usable.threads.empty()) out.topologies.resize(share.host + std::size_t{1});
    if (!usable.threads.empty()) out.topologies.back() = std::move(usable);
  }
  out.warnings = shared_gpus(*site, placed->devices);
  if (is_unread(site->unknown)) out.warnings.push_back(site->unknown.message() + ": ranks are not bound");
  const bool read = !out.topologies.empty() || is_unread(site->unknown);
  std::string passed_over = read ? passed_over_by_hwloc(options.environment) : "";
  if (!passed_over.empty()) out.warnings.push_back(std::move(passed_over));
  out.placement = std::move(*placed);
  out.quotas = std::move(site->quotas);
  return out;
}

Result<std::uint32_t> members_of_ppr(const Options& options, const std::vector<SiteHost>& hosts) {
  auto site = site_of(options, hosts, false);
  if (!site.ok()) return site.status();
  if (!site->unknown.ok()) return site->unknown;
  const MapBy& map = options.mapping.map;
  const std::uint32_t out = members_of_ppr(site->fabric, site->shares, options.mapping);
  if (out > 0) return out;
  return core::invalid_argument(fmt::format("--map-by ppr:{}:{}: {} none", map.per_unit, unit_name(map.unit),
                                            hosts.size() == 1 ? "this machine has" : "the hosts have"));
}

}  // namespace regroup::launcher
