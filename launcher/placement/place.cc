// First assigns members to objects (assignments); then each assignment takes the next free cpus of
// its object; then the assignments get their ranks.
#include "launcher/placement/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/printable.h"
#include "launcher/placement/explicit_places.h"
#include "launcher/placement/own_processors.h"

namespace regroup::placement {
namespace {

using base::invalid_argument;
using base::Result;
using base::Status;

struct Assignment {
  std::uint32_t object = 0;  // index of the object
  std::uint32_t turn = 0;    // number of earlier assignments to this object
};

struct Objects {
  std::vector<topology::ThreadSet> sets;
  std::vector<std::vector<topology::ThreadSet>> cpus;  // of each object
};

std::string_view map_word(const Policy& policy) {
  if (policy.map.kind == spec::MapBy::Kind::kSequence) return "seq";
  return policy.map.kind == spec::MapBy::Kind::kUnit ? spec::unit_name(policy.map_unit) : "slot";
}

std::string spelled(const Policy& policy) {
  std::string out =
      policy.map.kind == spec::MapBy::Kind::kPerUnit
          ? fmt::format("--map-by ppr:{}:{}", policy.map.per_unit, spec::unit_name(policy.map_unit))
          : fmt::format("--map-by {}", map_word(policy));
  if (policy.map.cpus > 0) out += fmt::format(":PE={}", policy.map.cpus);
  return out;
}

std::string_view cpu_word(const Policy& policy) {
  return policy.hwthreads ? "hardware threads" : "cores";
}

// The parts of one kind that lie within `whole`, cut to it.
std::vector<topology::ThreadSet> within(const topology::Topology& topology,
                                        const topology::ThreadSet& whole, spec::Unit unit) {
  std::map<std::uint32_t, topology::ThreadSet> found;
  for (const std::uint32_t thread : whole)
    found[topology.threads[thread].part(unit)].push_back(thread);
  std::vector<topology::ThreadSet> out;
  for (auto& [number, set] : found) {
    if (number != topology::kNoPart) out.push_back(std::move(set));
  }
  return out;
}

Result<Objects> objects_of(const topology::Topology& topology, const Policy& policy) {
  Objects out;
  out.sets = topology::parts_of(topology, policy.map_unit);
  if (out.sets.empty()) {
    return invalid_argument(fmt::format("{}: this machine has no {}", spelled(policy),
                                        spec::unit_name(policy.map_unit)));
  }
  const spec::Unit cpu = policy.hwthreads ? spec::Unit::kHwThread : spec::Unit::kCore;
  for (const topology::ThreadSet& set : out.sets) out.cpus.push_back(within(topology, set, cpu));
  return out;
}

// The number of members that an object can take. If one object is the whole machine,
// check_turn() checks its packages.
std::uint32_t capacity_of(const PlaceRequest& request, const Policy& policy, const Objects& objects,
                          std::size_t i) {
  if (!policy.bound || request.mapping.bind.overload_allowed ||
      policy.map.kind == spec::MapBy::Kind::kPerUnit)
    return request.members();
  return static_cast<std::uint32_t>(objects.cpus[i].size()) / policy.cpus;
}

Status no_capacity(const PlaceRequest& request, const Policy& policy, std::uint64_t capacity) {
  if (capacity == 0) {
    return base::resource_exhausted(fmt::format("{}: no {} has {} {}", spelled(policy),
                                                spec::unit_name(policy.map_unit), policy.cpus,
                                                cpu_word(policy)));
  }
  return base::resource_exhausted(
      fmt::format("--bind-to {0}: {1} members with {2} {3} each requested, only {4} fit; --bind-to "
                  "{0}:overload-allowed permits sharing",
                  spec::unit_name(policy.bind_unit), request.members(), policy.cpus,
                  policy.cpus > 1    ? cpu_word(policy)
                  : policy.hwthreads ? "hardware thread"
                                     : "core",
                  capacity));
}

Status check_capacity(const PlaceRequest& request, const Policy& policy,
                      const std::vector<std::uint32_t>& capacity) {
  if (policy.map.kind != spec::MapBy::Kind::kPerUnit) {
    const std::uint64_t all = std::accumulate(capacity.begin(), capacity.end(), std::uint64_t{0});
    return all < request.members() ? no_capacity(request, policy, all) : Status();
  }
  const std::uint64_t most = std::uint64_t{policy.map.per_unit} * capacity.size();
  for (const std::uint32_t count : request.counts) {
    if (count > most)
      return base::resource_exhausted(fmt::format("{}: permits {} on this machine, {} requested",
                                                  spelled(policy), base::counted(most, "member"),
                                                  count));
  }
  return {};
}

// Assigns `members` of one program to objects: round robin over objects that are not full; with
// ppr, one object after the other, first to those with processors that no earlier program uses.
// `used` counts the members of earlier programs.
std::vector<Assignment> deal(const Policy& policy, const std::vector<std::uint32_t>& capacity,
                             const Objects& objects, std::uint32_t members,
                             std::vector<std::uint32_t>& used) {
  const bool ppr = policy.map.kind == spec::MapBy::Kind::kPerUnit;
  std::vector<std::uint32_t> count(capacity.size());
  const auto unused = [&](std::size_t i) {
    const auto cpus = static_cast<std::uint32_t>(objects.cpus[i].size()) / policy.cpus;
    return cpus - std::min(cpus, used[i]);
  };
  std::uint32_t left = members;
  const auto add = [&](std::size_t i, std::uint32_t most) {
    const std::uint32_t taken = std::min(most, left);
    count[i] += taken;
    left -= taken;
  };
  for (std::size_t i = 0; ppr && policy.bound && i < capacity.size(); ++i)
    add(i, std::min(policy.map.per_unit, unused(i)));
  while (left > 0) {
    for (std::size_t i = 0; i < capacity.size(); ++i) {
      if (ppr)
        add(i, policy.map.per_unit - std::min(policy.map.per_unit, count[i]));
      else
        add(i, std::min(1U, capacity[i] - used[i] - count[i]));
    }
  }
  std::vector<Assignment> assignments;
  for (std::uint32_t i = 0; i < count.size(); ++i) {
    for (std::uint32_t turn = 0; turn < count[i]; ++turn) assignments.push_back({i, used[i]++});
  }
  return assignments;
}

// Takes one assignment from each unit in turn.
std::vector<Assignment> ranked(const topology::Topology& topology, const Policy& policy,
                               const Objects& objects, std::vector<Assignment> assignments) {
  if (policy.fill || policy.map_unit == spec::Unit::kNode) return assignments;
  std::map<std::uint32_t, std::vector<Assignment>> by_unit;
  for (const Assignment& assignment : assignments) {
    by_unit[topology.threads[objects.sets[assignment.object][0]].part(policy.rank_unit)].push_back(
        assignment);
  }
  std::vector<Assignment> out;
  for (std::size_t turn = 0; out.size() < assignments.size(); ++turn) {
    for (const auto& [unit, list] : by_unit) {
      if (turn < list.size()) out.push_back(list[turn]);
    }
  }
  return out;
}

// The first cpus of the assignments that fit into an object; each takes policy.cpus cpus. Only
// within a whole machine, whose packages nobody has named, does none span two packages.
std::vector<std::size_t> first_cpus(const topology::Topology& topology, const Policy& policy,
                                    const std::vector<topology::ThreadSet>& cpus) {
  const auto package = [&](std::size_t cpu) {
    return topology.threads[cpus[cpu][0]].part(spec::Unit::kPackage);
  };
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at + policy.cpus <= cpus.size();) {
    const bool whole =
        policy.map_unit != spec::Unit::kNode || package(at) == package(at + policy.cpus - 1);
    if (whole) starts.push_back(at);
    at += whole ? policy.cpus : 1;
  }
  return starts;
}

// The first cpu of assignment number `turn` of an object.
Result<std::size_t> first_cpu(const topology::Topology& topology, const Policy& policy,
                              const std::vector<topology::ThreadSet>& cpus, std::uint32_t turn) {
  const std::vector<std::size_t> starts = first_cpus(topology, policy, cpus);
  if (starts.empty()) {
    return base::resource_exhausted(
        fmt::format("PE={}: no package has that many {}", policy.cpus, cpu_word(policy)));
  }
  return starts[turn % starts.size()];
}

// The threads to which a member is bound, given its first cpu: a part that is larger than the
// mapped object, as a NUMA node of two packages, as a whole.
topology::ThreadSet bound_to(const topology::Topology& topology, const Policy& policy,
                             const std::vector<topology::ThreadSet>& cpus, std::size_t first) {
  topology::ThreadSet out;
  const std::uint32_t part = topology.threads[cpus[first][0]].part(policy.bind_unit);
  if (policy.cpus == 1 && policy.bind_unit != spec::Unit::kHwThread && part != topology::kNoPart) {
    for (std::uint32_t thread = 0; thread < topology.threads.size(); ++thread) {
      if (topology.threads[thread].part(policy.bind_unit) == part) out.push_back(thread);
    }
    return out;
  }
  for (std::size_t i = first; i < first + policy.cpus; ++i)
    out.insert(out.end(), cpus[i].begin(), cpus[i].end());
  return out;
}

// Checks that the assignments of an object fit without sharing cpus; some cpus next to the boundary
// of a package may not be usable.
Status check_turn(const PlaceRequest& request, const topology::Topology& topology,
                  const Policy& policy, const std::vector<topology::ThreadSet>& cpus,
                  std::uint32_t turn) {
  if (request.mapping.bind.overload_allowed) return {};
  const bool own = policy.cpus > 1 || policy.bind_unit <= spec::Unit::kCore;
  if (own && std::uint64_t{turn + 1} * policy.cpus > cpus.size()) {
    return base::resource_exhausted(
        fmt::format("{}: one {} has only {} {}; --bind-to {}:overload-allowed permits sharing",
                    spelled(policy), spec::unit_name(policy.map_unit), cpus.size(),
                    cpu_word(policy), spec::unit_name(policy.bind_unit)));
  }
  if (policy.cpus == 1 || turn == 0) return {};
  auto before = first_cpu(topology, policy, cpus, turn - 1);
  auto here = first_cpu(topology, policy, cpus, turn);
  if (!here.ok() || !before.ok() || *here > *before) return {};
  return no_capacity(request, policy, turn);
}

std::string dealt(const Policy& policy) {
  if (policy.map.kind == spec::MapBy::Kind::kPerUnit)
    return fmt::format("{} on each {}", policy.map.per_unit, spec::unit_name(policy.map_unit));
  return fmt::format("by {}", map_word(policy));
}

std::string share_text(const Policy& policy) {
  if (policy.cpus > 1) return fmt::format("its next {} {}", policy.cpus, cpu_word(policy));
  if (policy.bind_unit == policy.map_unit) return "all of it";
  const std::string_view cpu = policy.hwthreads ? "hwthread" : "core";
  if (spec::unit_name(policy.bind_unit) == cpu) return fmt::format("its next free {}", cpu);
  return fmt::format("the {} of its next free {}", spec::unit_name(policy.bind_unit), cpu);
}

Result<Slot> take(const PlaceRequest& request, const topology::Topology& topology,
                  const Policy& policy, const Objects& objects, const Assignment& assignment) {
  Slot out;
  const topology::ThreadSet& object = objects.sets[assignment.object];
  const std::uint32_t number = topology.threads[object[0]].part(policy.map_unit);
  out.object = policy.map_unit == spec::Unit::kNode
                   ? "host"
                   : fmt::format("{} {}", spec::unit_name(policy.map_unit), number);
  if (!policy.bound) {
    out.why = fmt::format("not bound: {}", policy.why_unbound);
    return out;
  }
  const std::vector<topology::ThreadSet>& cpus = objects.cpus[assignment.object];
  if (cpus.size() < policy.cpus) return no_capacity(request, policy, 0);
  REGROUP_RETURN_IF_ERROR(check_turn(request, topology, policy, cpus, assignment.turn));
  REGROUP_ASSIGN_OR_RETURN(auto first, first_cpu(topology, policy, cpus, assignment.turn));
  out.threads = bound_to(topology, policy, cpus, first);
  out.why = fmt::format("number {} on {} ({}): {}", assignment.turn + 1, out.object, dealt(policy),
                        share_text(policy));
  return out;
}

// True if members are bound to the processors that a list or a rank file names, however many there
// are: the machine has those of the list, and members of the rank file may not exceed the slots.
bool names_processors(const topology::Topology& topology, const PlaceRequest& request,
                      const Policy& policy) {
  if (policy.map.kind == spec::MapBy::Kind::kRankFile) return !request.oversubscribe;
  if (policy.map.kind != spec::MapBy::Kind::kCpuList) return false;
  const spec::Unit unit = policy.hwthreads ? spec::Unit::kHwThread : spec::Unit::kCore;
  return std::ranges::all_of(policy.map.cpu_list, [&](std::uint32_t number) {
    return std::ranges::any_of(topology.threads, [&](const topology::HwThread& thread) {
      return thread.part(unit) == number;
    });
  });
}

Result<Policy> fitted_policy(const topology::Topology& topology, const PlaceRequest& request) {
  auto policy = policy_of(request);
  if (!policy.ok() || !policy->bound) return policy;
  const std::size_t cpus =
      topology::parts_of(topology, policy->hwthreads ? spec::Unit::kHwThread : spec::Unit::kCore)
          .size();
  const bool asked =
      policy->bind_asked || policy->map.cpus > 0 || names_processors(topology, request, *policy);
  if (!asked && std::uint64_t{request.members()} * policy->cpus > cpus) {
    policy->bound = false;
    policy->why_unbound = fmt::format("{} on {} {}", base::counted(request.members(), "member"),
                                      cpus, cpu_word(*policy));
  }
  if (!topology::parts_of(topology, policy->bind_unit).empty()) return policy;
  if (asked)
    return invalid_argument(
        fmt::format("--bind-to {0}: this machine has no {0}", spec::unit_name(policy->bind_unit)));
  policy->bind_unit = spec::Unit::kPackage;
  return policy;
}

// Members are mapped within the processors of --cpu-set.
bool maps_within_list(const spec::Mapping& mapping) {
  return mapping.map.kind != spec::MapBy::Kind::kDefault && !mapping.cpu_set.empty();
}

Status place_by_objects(const topology::Topology& topology, const PlaceRequest& request,
                        Placement& out) {
  const Policy& policy = out.policy;
  REGROUP_ASSIGN_OR_RETURN(auto objects, objects_of(topology, policy));
  std::vector<std::uint32_t> capacity;
  for (std::size_t i = 0; i < objects.sets.size(); ++i)
    capacity.push_back(capacity_of(request, policy, objects, i));
  REGROUP_RETURN_IF_ERROR(check_capacity(request, policy, capacity));
  std::vector<std::uint32_t> used(capacity.size());
  for (const std::uint32_t members : request.counts) {
    std::vector<Assignment> assignments = deal(policy, capacity, objects, members, used);
    for (const Assignment& assignment : ranked(topology, policy, objects, std::move(assignments))) {
      REGROUP_ASSIGN_OR_RETURN(auto slot, take(request, topology, policy, objects, assignment));
      out.ranks.push_back(std::move(slot));
    }
  }
  return {};
}

}  // namespace

Result<Placement> place_on_processors(const topology::Topology& whole,
                                      const PlaceRequest& request) {
  const bool listed = maps_within_list(request.mapping);
  REGROUP_ASSIGN_OR_RETURN(auto allowed, listed ? only_cpu_set(whole, request.mapping)
                                                : Result<topology::Topology>(whole));
  const topology::Topology& topology = allowed;
  if (topology.threads.empty())
    return base::resource_exhausted("no processor available to place members on");
  REGROUP_ASSIGN_OR_RETURN(auto policy, fitted_policy(topology, request));
  Placement out{policy, {}};
  if (is_explicit(request, policy)) {
    REGROUP_RETURN_IF_ERROR(place_explicitly(whole, request, out));
    return out;
  }
  REGROUP_RETURN_IF_ERROR(place_by_objects(topology, request, out));
  for (Slot& slot : out.ranks) {
    slot.cpus = topology::os_numbers(topology, slot.threads);
    if (listed) slot.threads = threads_with(whole, slot.cpus);
  }
  return out;
}

Result<std::uint32_t> members_with_processors(const topology::Topology& topology,
                                              const PlaceRequest& request, const Policy& policy) {
  REGROUP_ASSIGN_OR_RETURN(const auto allowed, maps_within_list(request.mapping)
                                                   ? only_cpu_set(topology, request.mapping)
                                                   : Result<topology::Topology>(topology));
  REGROUP_ASSIGN_OR_RETURN(const auto objects, objects_of(allowed, policy));
  std::size_t members = 0;
  for (const auto& cpus : objects.cpus) members += first_cpus(allowed, policy, cpus).size();
  return static_cast<std::uint32_t>(members);
}

std::uint32_t members_of_ppr(const topology::Topology& topology, const spec::Mapping& mapping) {
  if (mapping.map.kind != spec::MapBy::Kind::kPerUnit) return 0;
  return mapping.map.per_unit *
         static_cast<std::uint32_t>(topology::parts_of(topology, mapping.map.unit).size());
}

}  // namespace regroup::placement
