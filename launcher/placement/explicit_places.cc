// Numbers of cores and hardware threads are logical, as in Open MPI; hydra's user:LIST uses
// operating system numbers.
#include "launcher/placement/explicit_places.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/printable.h"

namespace regroup::placement {
namespace {

using base::invalid_argument;
using base::Result;
using base::Status;

spec::Unit cpu_unit(bool hwthreads) {
  return hwthreads ? spec::Unit::kHwThread : spec::Unit::kCore;
}

// The threads of the cpu with this number, within a package if one is named.
Result<topology::ThreadSet> numbered(const topology::Topology& topology,
                                     const std::vector<topology::ThreadSet>& cpus, bool hwthreads,
                                     std::uint32_t number, const std::string& option) {
  for (const topology::ThreadSet& cpu : cpus) {
    if (topology.threads[cpu[0]].part(cpu_unit(hwthreads)) == number) return cpu;
  }
  std::vector<int> there;
  for (const topology::ThreadSet& cpu : cpus)
    there.push_back(static_cast<int>(topology.threads[cpu[0]].part(cpu_unit(hwthreads))));
  return invalid_argument(fmt::format("{}: {} {} is not available to this job, only {}", option,
                                      spec::unit_name(cpu_unit(hwthreads)), number,
                                      topology::ranges(there)));
}

Result<topology::ThreadSet> all_numbered(const topology::Topology& topology,
                                         const std::vector<std::uint32_t>& numbers, bool hwthreads,
                                         const std::string& option) {
  const std::vector<topology::ThreadSet> cpus = topology::parts_of(topology, cpu_unit(hwthreads));
  std::set<std::uint32_t> threads;
  for (const std::uint32_t number : numbers) {
    REGROUP_ASSIGN_OR_RETURN(auto cpu, numbered(topology, cpus, hwthreads, number, option));
    threads.insert(cpu.begin(), cpu.end());
  }
  return topology::ThreadSet(threads.begin(), threads.end());
}

// "slot=1:0-1" counts the cores of package 1.
Result<topology::ThreadSet> rank_threads(const topology::Topology& topology,
                                         const spec::RankPlace& place, bool hwthreads) {
  const std::string option = fmt::format("rank file, rank {}", place.rank);
  if (!place.package) return all_numbered(topology, place.cpus, hwthreads, option);
  const std::vector<topology::ThreadSet> packages =
      topology::parts_of(topology, spec::Unit::kPackage);
  if (*place.package >= packages.size()) {
    return invalid_argument(fmt::format("{}: package {} does not exist; this machine has {}",
                                        option, *place.package, packages.size()));
  }
  const topology::ThreadSet& package = packages[*place.package];
  if (place.cpus.empty()) return package;
  std::vector<std::uint32_t> cores;
  for (const std::uint32_t thread : package) {
    const std::uint32_t core = topology.threads[thread].part(spec::Unit::kCore);
    if (cores.empty() || cores.back() != core) cores.push_back(core);
  }
  std::vector<std::uint32_t> numbers;
  for (const std::uint32_t cpu : place.cpus) {
    if (cpu >= cores.size())
      return invalid_argument(fmt::format("{}: package {} has cores 0 to {}, got {}", option,
                                          *place.package, cores.size() - 1, cpu));
    numbers.push_back(cores[cpu]);
  }
  return all_numbered(topology, numbers, false, option);
}

Status place_rank_file(const topology::Topology& topology, const PlaceRequest& request,
                       Placement& out) {
  const std::vector<spec::RankPlace>& ranks = request.mapping.ranks;
  if (ranks.size() < request.members()) {
    return base::resource_exhausted(fmt::format("rank file: got {} for {}",
                                                base::counted(ranks.size(), "rank"),
                                                base::counted(request.members(), "member")));
  }
  std::vector<std::uint32_t> taken_by(topology.threads.size(), topology::kNoPart);
  for (std::uint32_t rank = 0; rank < request.members(); ++rank) {
    REGROUP_ASSIGN_OR_RETURN(auto threads,
                             rank_threads(topology, ranks[rank], out.policy.hwthreads));
    for (const std::uint32_t thread : threads) {
      if (taken_by[thread] != topology::kNoPart && !request.mapping.bind.overload_allowed) {
        return base::resource_exhausted(
            fmt::format("rank file: ranks {} and {} share {} {}; --bind-to core:overload-allowed "
                        "permits sharing",
                        taken_by[thread], rank, spec::unit_name(cpu_unit(out.policy.hwthreads)),
                        topology.threads[thread].part(cpu_unit(out.policy.hwthreads))));
      }
      taken_by[thread] = rank;
    }
    out.ranks.push_back(
        {{}, std::move(threads), "host", fmt::format("line of rank {} in the rank file", rank)});
  }
  return {};
}

Status place_cpu_list(const topology::Topology& topology, const PlaceRequest& request,
                      Placement& out) {
  const bool set = out.policy.map.cpu_list.empty();  // --bind-to cpu-list takes those of --cpu-list
  const std::vector<std::uint32_t>& list = set ? request.mapping.cpu_set : out.policy.map.cpu_list;
  const std::string option = request.mapping.cpu_set.empty() ? "--map-by pe-list" : "--cpu-set";
  if (list.empty()) return invalid_argument("--bind-to cpu-list: requires --cpu-list");
  const bool ordered = takes_list_in_order(request, out.policy);
  const bool shared = request.mapping.bind.overload_allowed || request.oversubscribe;
  const std::vector<std::uint32_t> all = {request.members()};
  for (const std::uint32_t members : ordered ? all : request.counts) {
    if (members <= list.size() || shared) continue;
    return base::resource_exhausted(fmt::format("{}: got {} for {} of the list", option,
                                                base::counted(members, "member"),
                                                base::counted(list.size(), "processor")));
  }
  for (std::uint32_t rank = 0; rank < request.members(); ++rank) {
    const std::vector<std::uint32_t> mine =
        ordered ? std::vector<std::uint32_t>{list[rank % list.size()]} : list;
    REGROUP_ASSIGN_OR_RETURN(auto threads,
                             all_numbered(topology, mine, out.policy.hwthreads, option));
    out.ranks.push_back({{},
                         std::move(threads),
                         "host",
                         ordered ? fmt::format("number {} of {}", rank % list.size() + 1, option)
                                 : fmt::format("all of {}", option)});
  }
  return {};
}

Status place_user_lists(const topology::Topology& topology, const PlaceRequest& request,
                        Placement& out) {
  const auto& lists = request.mapping.bind.cpu_lists;
  for (std::uint32_t rank = 0; rank < request.members(); ++rank) {
    const std::vector<std::uint32_t>& list = lists[rank % lists.size()];
    topology::ThreadSet threads = threads_with(topology, {list.begin(), list.end()});
    if (threads.size() != std::set<std::uint32_t>(list.begin(), list.end()).size()) {
      std::vector<int> there;
      for (const topology::HwThread& thread : topology.threads) there.push_back(thread.os);
      std::sort(there.begin(), there.end());
      return invalid_argument(
          fmt::format("-bind-to user: of processors {} only {} are available to this job",
                      fmt::join(list, "+"), topology::ranges(there)));
    }
    out.ranks.push_back({{},
                         std::move(threads),
                         "host",
                         fmt::format("list {} of -bind-to user", rank % lists.size() + 1)});
  }
  return {};
}

// hydra: rank r goes to map object r, round robin; within it, to the next `count` bind objects, or
// to the one around it.
Status place_as_hydra(const topology::Topology& topology, const PlaceRequest& request,
                      Placement& out) {
  const spec::Unit unit = out.policy.bind_unit;
  const std::uint32_t count = std::max(request.mapping.bind.count, out.policy.map.cpus);
  const std::vector<topology::ThreadSet> targets = topology::parts_of(topology, unit);
  const bool within = out.policy.map_unit < unit && count == 1 &&
                      !topology::parts_of(topology, out.policy.map_unit).empty();
  const bool round =
      out.policy.map.kind == spec::MapBy::Kind::kUnit && (out.policy.map_unit > unit || within);
  const std::vector<topology::ThreadSet> objects =
      topology::parts_of(topology, round ? out.policy.map_unit : spec::Unit::kNode);
  if (objects.empty())
    return invalid_argument(
        fmt::format("-map-by {0}: this machine has no {0}", spec::unit_name(out.policy.map_unit)));
  for (std::uint32_t rank = 0; rank < request.members(); ++rank) {
    const topology::ThreadSet& object = objects[rank % objects.size()];
    std::vector<topology::ThreadSet> inside;
    for (const topology::ThreadSet& target : targets) {
      const topology::ThreadSet& larger = round && within ? target : object;
      const topology::ThreadSet& smaller = round && within ? object : target;
      if (std::includes(larger.begin(), larger.end(), smaller.begin(), smaller.end()))
        inside.push_back(target);
    }
    if (inside.empty())
      return invalid_argument(
          fmt::format("-bind-to {}: this machine has none", spec::unit_name(unit)));
    Slot slot{
        {},
        {},
        round ? fmt::format("{} {}", spec::unit_name(out.policy.map_unit), rank % objects.size())
              : "host",
        ""};
    for (std::uint32_t i = 0; i < std::min<std::size_t>(count, inside.size()); ++i) {
      const std::size_t turn = rank / objects.size();
      const topology::ThreadSet& target = inside[(turn * count + i) % inside.size()];
      slot.threads.insert(slot.threads.end(), target.begin(), target.end());
    }
    std::sort(slot.threads.begin(), slot.threads.end());
    slot.why = fmt::format("next {} {} of the {}", count, spec::unit_name(unit), slot.object);
    out.ranks.push_back(std::move(slot));
  }
  return {};
}

}  // namespace

topology::ThreadSet threads_with(const topology::Topology& topology, const std::vector<int>& os) {
  topology::ThreadSet out;
  for (std::uint32_t i = 0; i < topology.threads.size(); ++i) {
    if (std::find(os.begin(), os.end(), topology.threads[i].os) != os.end()) out.push_back(i);
  }
  return out;
}

Result<topology::Topology> only_cpu_set(const topology::Topology& topology,
                                        const spec::Mapping& mapping) {
  REGROUP_ASSIGN_OR_RETURN(auto threads,
                           all_numbered(topology, mapping.cpu_set,
                                        mapping.map.hwthread_cpus.value_or(false), "--cpu-set"));
  return topology::restricted(topology, topology::os_numbers(topology, threads));
}

bool takes_list_in_order(const PlaceRequest& request, const Policy& policy) {
  return policy.map.ordered || request.mapping.bind.kind == spec::BindTo::Kind::kCpuList;
}

bool is_explicit(const PlaceRequest& request, const Policy& policy) {
  if (!policy.bound) return false;
  return policy.map.kind == spec::MapBy::Kind::kRankFile ||
         policy.map.kind == spec::MapBy::Kind::kCpuList ||
         request.mapping.bind.kind == spec::BindTo::Kind::kCpuList ||
         request.compat == spec::Compat::kMpich;
}

Status place_explicitly(const topology::Topology& topology, const PlaceRequest& request,
                        Placement& out) {
  Status status;
  if (out.policy.map.kind == spec::MapBy::Kind::kRankFile) {
    status = place_rank_file(topology, request, out);
  } else if (!request.mapping.bind.cpu_lists.empty()) {
    status = place_user_lists(topology, request, out);
  } else if (out.policy.map.kind == spec::MapBy::Kind::kCpuList ||
             request.mapping.bind.kind == spec::BindTo::Kind::kCpuList) {
    status = place_cpu_list(topology, request, out);
  } else {
    status = place_as_hydra(topology, request, out);
  }
  for (Slot& slot : out.ranks) slot.cpus = topology::os_numbers(topology, slot.threads);
  return status;
}

}  // namespace regroup::placement
