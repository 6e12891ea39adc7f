// The decision is place()'s; here are the cases in which the machine is not asked, or does not answer.
#include "launcher/place/members.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "launcher/place/device_members.h"
#include "launcher/topo/read_topology.h"

namespace regroup::launcher {
namespace {

using core::Result;
using core::Status;

bool shows_machine(const Options& options) {
  return options.display.map || options.display.topology || options.display.bindings;
}

PlaceRequest request_of(const Options& options, const std::vector<std::uint32_t>& counts) {
  return {options.mapping, options.compat, counts, options.oversubscribe};
}

PlacedJob unbound(const Policy& policy, const PlaceRequest& request, const std::string& why) {
  Placement placement{policy, {}};
  placement.policy.bound = false;
  placement.policy.why_unbound = why;
  placement.ranks.assign(request.members(), Spot{{}, {}, "host", fmt::format("not bound: {}", why)});
  return {std::nullopt, std::move(placement)};
}

// The machine as this job may use it.
Result<Topology> usable_topology(const Options& options, const Allocation& allocation) {
  auto topology = read_this_machine();
  if (!topology.ok()) return topology;
  if (!topology->this_machine) {
    if (options.do_not_launch) return topology;
    return Status(core::Code::kUnavailable, "HWLOC_XMLFILE or HWLOC_SYNTHETIC describes another machine");
  }
  return restricted(std::move(*topology), allocation.hosts.at(0).cores);
}

bool described(const Options& options) {
  return options.environment.contains("HWLOC_XMLFILE") || options.environment.contains("HWLOC_SYNTHETIC");
}

Status take_described_machine(Allocation& allocation) {
  auto topology = read_this_machine();
  if (!topology.ok()) return topology.status();
  Host& host = allocation.hosts.at(0);
  host.cores.clear();
  for (const HwThread& thread : topology->threads) host.cores.push_back(thread.os);
  host.slots = static_cast<std::uint32_t>(parts_of(*topology, Unit::kCore).size());
  return {};
}

}  // namespace

PlacedJob PlacedJob::with_spare() const {
  PlacedJob out = *this;
  const Policy& policy = placement.policy;
  if (!policy.bound || !topology || policy.bind_unit > Unit::kCore) return out;
  std::set<std::uint32_t> taken;
  for (const Spot& spot : placement.ranks) taken.insert(spot.threads.begin(), spot.threads.end());
  for (const ThreadSet& cpu : parts_of(*topology, policy.hwthreads ? Unit::kHwThread : Unit::kCore)) {
    const bool free =
        std::none_of(cpu.begin(), cpu.end(), [&](auto thread) { return taken.contains(thread); });
    if (free) out.placement.ranks.push_back({os_numbers(*topology, cpu), cpu, "host", "left over"});
  }
  return out;
}

std::vector<std::vector<int>> PlacedJob::cores() const {
  std::vector<std::vector<int>> out;
  if (!placement.policy.bound) return out;
  for (const Spot& spot : placement.ranks) out.push_back(spot.cpus);
  return out;
}

std::vector<pmi::Binding> PlacedJob::bindings() const {
  std::vector<pmi::Binding> out;
  if (!placement.policy.bound || !topology) return out;
  for (const Spot& spot : placement.ranks) {
    out.push_back({ranges(spot.cpus), locality_text(*topology, spot.threads)});
  }
  return out;
}

std::vector<std::uint32_t> PlacedJob::threads(std::uint32_t slots) const {
  const auto members = static_cast<std::uint32_t>(placement.ranks.size());
  if (!placement.policy.bound || !topology)
    return std::vector<std::uint32_t>(members, std::max(1U, slots / std::max(1U, members)));
  std::map<std::vector<int>, std::uint32_t> sharers;
  for (const Spot& spot : placement.ranks) ++sharers[spot.cpus];
  std::vector<std::uint32_t> out;
  for (const Spot& spot : placement.ranks) {
    std::set<std::uint32_t> cores;
    for (const std::uint32_t thread : spot.threads) cores.insert(topology->threads[thread].part(Unit::kCore));
    const auto units =
        static_cast<std::uint32_t>(placement.policy.hwthreads ? spot.threads.size() : cores.size());
    out.push_back(std::max(1U, units / sharers[spot.cpus]));
  }
  return out;
}

Status prepare_members(Options& options, Allocation& allocation) {
  if (options.do_not_launch && described(options))
    REGROUP_RETURN_IF_ERROR(take_described_machine(allocation));
  const MapBy& map = options.mapping.map;
  Host& host = allocation.hosts.at(0);
  const bool threads =
      map.hwthread_cpus.value_or(map.kind == MapBy::Kind::kUnit && map.unit == Unit::kHwThread);
  if (threads) host.slots = static_cast<std::uint32_t>(host.cores.size());
  if (map.kind != MapBy::Kind::kPerUnit || options.max != 0) return {};
  auto topology = usable_topology(options, allocation);
  if (!topology.ok()) return topology.status();
  options.min = options.max = members_of_ppr(*topology, options.mapping);
  if (options.max > 0) return {};
  return core::invalid_argument(
      fmt::format("--map-by ppr:{}:{}: this machine has none", map.per_unit, unit_name(map.unit)));
}

Result<PlacedJob> place_members(const Options& options, const Allocation& allocation,
                                const std::vector<std::uint32_t>& counts) {
  if (wants_devices(options)) return place_with_devices(options, allocation, counts);
  const PlaceRequest request = request_of(options, counts);
  auto policy = policy_of(request);
  if (!policy.ok()) return policy.status();
  if (options.elastic && !policy->bind_asked)
    return unbound(*policy, request, "members of an elastic job are bound where --bind-to says so");
  if (!needs_topology(*policy) && !shows_machine(options))
    return unbound(*policy, request, policy->why_unbound);
  auto topology = usable_topology(options, allocation);
  const bool asked = policy->bind_asked && !options.mapping.bind.if_supported;
  if (!topology.ok()) {
    const std::string& why = topology.status().message();
    if (!asked && !options.display.topology) return unbound(*policy, request, why);
    return Status(topology.code(), fmt::format("--bind-to, --display topo: {}", why));
  }
  auto placement = place(*topology, request);
  if (!placement.ok()) return placement.status();
  return PlacedJob{std::move(*topology), std::move(*placement)};
}

}  // namespace regroup::launcher
