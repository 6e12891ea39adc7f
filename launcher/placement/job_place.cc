// Chooses hosts, then GPUs, then processors; each stage is a function of its own.
#include "launcher/placement/job_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <map>
#include <tuple>
#include <utility>

#include "base/printable.h"
#include "launcher/placement/explicit_places.h"
#include "launcher/placement/gpu_ranks.h"
#include "launcher/placement/host_map.h"
#include "launcher/placement/own_processors.h"

namespace regroup::placement {
namespace {

using base::invalid_argument;
using base::Result;
using base::Status;
using Map = spec::MapBy::Kind;

// The usable processors of each host; equal hosts share one entry.
class Processors {
 public:
  Processors(const topology::Fabric& fabric, const std::vector<HostShare>& hosts)
      : fabric_(fabric), hosts_(hosts) {}

  const topology::Topology& of(std::size_t host) {
    const HostShare& share = hosts_[host];
    const auto [at, added] =
        known_.try_emplace({fabric_.hosts[share.host].machine, share.cpus}, topology::Topology());
    if (added) at->second = usable_processors(fabric_, share);
    return at->second;
  }

 private:
  const topology::Fabric& fabric_;
  const std::vector<HostShare>& hosts_;
  std::map<std::pair<std::uint32_t, std::vector<int>>, topology::Topology> known_;
};

std::uint32_t objects_in(const topology::Topology& topology, spec::Unit unit) {
  return unit == spec::Unit::kNode
             ? 1
             : static_cast<std::uint32_t>(topology::parts_of(topology, unit).size());
}

// Hydra maps to objects within hosts only.
bool is_of_hydra(const spec::Mapping& mapping) {
  const bool by_node = mapping.map.kind == Map::kUnit && mapping.map.unit == spec::Unit::kNode;
  return !by_node && mapping.map.kind != Map::kPerUnit &&
         mapping.rank.kind == spec::RankBy::Kind::kDefault;
}

// Members that must be bound go to the next host once the processors of one are used. Empty: they
// need not be.
Result<std::vector<std::uint32_t>> most_bound(const std::vector<HostShare>& hosts,
                                              const PlaceRequest& request, const Policy& policy,
                                              Processors& processors) {
  std::vector<std::uint32_t> out;
  const bool must = policy.bound && (policy.bind_asked || policy.map.cpus > 0) &&
                    !request.mapping.bind.overload_allowed;
  const bool dealt = policy.map.kind == Map::kSlot || policy.map.kind == Map::kUnit;
  if (!must || !dealt || is_explicit(request, policy)) return out;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    REGROUP_ASSIGN_OR_RETURN(const auto members,
                             members_with_processors(processors.of(i), request, policy));
    out.push_back(members);
  }
  return out;
}

HostMapRequest host_request(const topology::Fabric& fabric, const std::vector<HostShare>& hosts,
                            const JobRequest& request, const Policy& policy,
                            Processors& processors) {
  const spec::Mapping& mapping = request.ranks.mapping;
  HostMapRequest out;
  if (policy.bound && policy.map.kind == Map::kCpuList && !mapping.bind.overload_allowed)
    out.most_of_list = static_cast<std::uint32_t>(policy.map.cpu_list.size());
  out.list_per_program = !takes_list_in_order(request.ranks, policy);
  out.counts = request.ranks.counts;
  out.only_hosts = request.hosts;
  out.per_host = request.per_host;
  out.map = mapping.map;
  out.rank = mapping.rank;
  out.sequence = mapping.sequence;
  out.oversubscribe = request.ranks.oversubscribe;
  out.cyclic = request.ranks.compat == spec::Compat::kMpich && out.oversubscribe &&
               is_of_hydra(mapping) &&
               std::ranges::all_of(hosts, [](const HostShare& h) { return h.max_slots == 0; });
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const std::uint32_t slots = hosts[i].slots != 0 ? hosts[i].slots : request.ranks.members();
    out.hosts.push_back({fabric.hosts[hosts[i].host].name, slots, hosts[i].max_slots});
    if (mapping.map.kind == Map::kPerUnit)
      out.most.push_back(mapping.map.per_unit * objects_in(processors.of(i), mapping.map.unit));
  }
  return out;
}

// Ranks the members as if all hosts were one: consecutive ranks on consecutive objects, round
// robin.
Result<std::vector<std::uint32_t>> span_hosts(const std::vector<HostShare>& hosts,
                                              const JobRequest& request, Processors& processors,
                                              const std::vector<std::uint32_t>& bound) {
  const std::uint32_t members = request.ranks.members();
  std::vector<std::uint32_t> out, slots_left;
  for (const HostShare& host : hosts)
    slots_left.push_back(host.slots == 0 || request.ranks.oversubscribe ? members : host.slots);
  for (std::size_t i = 0; i < bound.size(); ++i) slots_left[i] = std::min(slots_left[i], bound[i]);
  for (bool placed = true; out.size() < members && placed;) {
    placed = false;
    for (std::uint32_t host = 0; host < hosts.size(); ++host) {
      const std::uint32_t objects = objects_in(processors.of(host), request.ranks.mapping.map.unit);
      for (std::uint32_t i = 0; i < objects && slots_left[host] > 0 && out.size() < members; ++i) {
        out.push_back(host);
        --slots_left[host];
        placed = true;
      }
    }
  }
  if (out.size() == members) return out;
  return base::unavailable(fmt::format(
      "{} requested; {} fit into the slots of {}; --oversubscribe allows more",
      base::counted(members, "member"), out.size(), base::counted(hosts.size(), "host")));
}

Result<std::vector<std::uint32_t>> hosts_of_rank_file(const topology::Fabric& fabric,
                                                      const std::vector<HostShare>& hosts,
                                                      const JobRequest& request) {
  std::vector<std::uint32_t> out;
  for (const spec::RankPlace& place : request.ranks.mapping.ranks) {
    if (out.size() == request.ranks.members()) break;
    const auto host = std::find_if(hosts.begin(), hosts.end(), [&](const HostShare& share) {
      return fabric.hosts[share.host].name == place.host;
    });
    if (host == hosts.end())
      return invalid_argument(fmt::format("rank file, rank {}: host {} is not a host of the job",
                                          place.rank, place.host));
    out.push_back(static_cast<std::uint32_t>(host - hosts.begin()));
  }
  if (out.size() == request.ranks.members()) return out;
  return base::resource_exhausted(fmt::format("rank file: got {} for {}",
                                              base::counted(out.size(), "rank"),
                                              base::counted(request.ranks.members(), "member")));
}

Result<std::vector<std::uint32_t>> map_ranks(const topology::Fabric& fabric,
                                             const std::vector<HostShare>& hosts,
                                             const JobRequest& request, const Policy& policy,
                                             Processors& processors) {
  const spec::MapBy& map = request.ranks.mapping.map;
  if (hosts.size() == 1) return std::vector<std::uint32_t>(request.ranks.members(), 0);
  if (map.kind == Map::kRankFile) return hosts_of_rank_file(fabric, hosts, request);
  const bool one_range = map.kind == Map::kUnit && map.span && request.hosts.empty();
  HostMapRequest wanted = host_request(fabric, hosts, request, policy, processors);
  const auto mapped = [&](const std::vector<std::uint32_t>& bound) {
    if (one_range && map.unit != spec::Unit::kNode)
      return span_hosts(hosts, request, processors, bound);
    wanted.most_bound = bound;
    return map_to_hosts(wanted);
  };
  const auto bound = most_bound(hosts, request.ranks, policy, processors);
  if (bound.ok() && !bound->empty()) {
    if (auto found = mapped(*bound); found.ok()) return found;
  }
  return mapped({});  // on some host they do not fit, which says what could be done
}

// The request for one host: the job's ranks `ranks`.
PlaceRequest on_host(const PlaceRequest& request, const std::vector<std::uint32_t>& ranks,
                     const std::vector<std::uint32_t>& program_of) {
  PlaceRequest out = request;
  out.job_members = request.members();
  out.counts.assign(request.counts.size(), 0);
  out.mapping.ranks.clear();
  for (const std::uint32_t rank : ranks) {
    ++out.counts[program_of[rank]];
    if (rank < request.mapping.ranks.size())
      out.mapping.ranks.push_back(request.mapping.ranks[rank]);
  }
  return out;
}

std::vector<std::uint32_t> programs_of(const std::vector<std::uint32_t>& counts) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t program = 0; program < counts.size(); ++program)
    out.insert(out.end(), counts[program], program);
  return out;
}

Placement unbound(const Policy& policy, const PlaceRequest& request) {
  Placement out{policy, {}};
  out.ranks.assign(request.members(),
                   Slot{{}, {}, "host", fmt::format("not bound: {}", policy.why_unbound)});
  return out;
}

// Numbers the members of each program over the objects of all hosts, one on each, again and again.
// `mapped`: the host of each rank, in the order of hosts.
void rank_over_objects(const std::vector<std::uint32_t>& mapped,
                       const std::vector<std::uint32_t>& program_of, JobPlacement& out) {
  struct Turn {
    std::uint32_t program, number, host, rank;  // `number`: of earlier members on the object
    auto operator<=>(const Turn&) const = default;
  };
  std::vector<Turn> turns;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::string>, std::uint32_t> on_object;
  for (std::uint32_t rank = 0; rank < mapped.size(); ++rank) {
    std::uint32_t& members = on_object[{program_of[rank], mapped[rank], out.slots[rank].object}];
    turns.push_back({program_of[rank], members++, mapped[rank], rank});
  }
  std::ranges::sort(turns);
  const std::vector<std::uint32_t> hosts = out.hosts;
  std::vector<Slot> slots = std::move(out.slots);
  out.slots.clear();
  for (std::size_t rank = 0; rank < turns.size(); ++rank) {
    out.hosts[rank] = hosts[turns[rank].rank];
    out.slots.push_back(std::move(slots[turns[rank].rank]));
  }
}

// Ranks span the objects of all hosts: as --rank-by says, or where it says nothing --map-by.
bool ranks_span(const spec::Mapping& mapping, const Policy& policy) {
  const bool by_object = policy.map.kind == Map::kUnit || policy.map.kind == Map::kPerUnit;
  const bool spans = mapping.rank.kind == spec::RankBy::Kind::kDefault
                         ? policy.map.span
                         : mapping.rank.kind == spec::RankBy::Kind::kSpan;
  return by_object && policy.map_unit != spec::Unit::kNode && spans;
}

Result<JobPlacement> place_by_processors(const topology::Fabric& fabric,
                                         const std::vector<HostShare>& hosts,
                                         const JobRequest& request) {
  REGROUP_ASSIGN_OR_RETURN(const auto policy, policy_of(request.ranks));
  Processors processors(fabric, hosts);
  REGROUP_ASSIGN_OR_RETURN(const auto mapped,
                           map_ranks(fabric, hosts, request, policy, processors));
  std::map<std::uint32_t, std::vector<std::uint32_t>> ranks_on;
  for (std::uint32_t rank = 0; rank < mapped.size(); ++rank) ranks_on[mapped[rank]].push_back(rank);
  JobPlacement out;
  out.slots.resize(mapped.size());
  for (const std::uint32_t host : mapped) out.hosts.push_back(hosts[host].host);
  const std::vector<std::uint32_t> program_of = programs_of(request.ranks.counts);
  bool first = true;
  for (const auto& [host, ranks] : ranks_on) {
    const PlaceRequest here =
        hosts.size() == 1 ? request.ranks : on_host(request.ranks, ranks, program_of);
    const topology::Topology& topology = processors.of(host);
    const bool blind = topology.threads.empty() && !needs_topology(policy);
    auto placed =
        blind ? Result<Placement>(unbound(policy, here)) : place_on_processors(topology, here);
    if (!placed.ok() && hosts.size() == 1) return placed.status();
    if (!placed.ok())
      return Status(placed.code(), fmt::format("host {}: {}", fabric.hosts[hosts[host].host].name,
                                               placed.status().message()));
    if (std::exchange(first, false)) out.policy = placed->policy;
    out.policy.bound = out.policy.bound || placed->policy.bound;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      out.slots[ranks[i]] = std::move(placed->ranks[i]);
  }
  if (ranks_on.size() > 1 && ranks_span(request.ranks.mapping, policy))
    rank_over_objects(mapped, program_of, out);
  return out;
}

}  // namespace

bool JobRequest::on_devices() const {
  return std::any_of(gpus.begin(), gpus.end(), [](std::uint32_t count) { return count > 0; });
}

topology::Topology usable_processors(const topology::Fabric& fabric, const HostShare& host) {
  const topology::Topology& all = fabric.machines[fabric.hosts[host.host].machine].processors;
  return host.cpus.empty() ? all : topology::restricted(all, host.cpus);
}

std::uint32_t members_of_ppr(const topology::Fabric& fabric, const std::vector<HostShare>& hosts,
                             const spec::Mapping& mapping) {
  if (mapping.map.kind != Map::kPerUnit) return 0;
  Processors processors(fabric, hosts);
  std::uint32_t out = 0;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    out += mapping.map.per_unit * objects_in(processors.of(i), mapping.map.unit);
  return out;
}

Result<JobPlacement> place_job(const topology::Fabric& fabric, const std::vector<HostShare>& hosts,
                               const JobRequest& request) {
  if (hosts.empty()) return invalid_argument("no host available to place members on");
  return request.on_devices() ? place_by_gpus(fabric, hosts, request)
                              : place_by_processors(fabric, hosts, request);
}

}  // namespace regroup::placement
