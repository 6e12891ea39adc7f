// The defaults: those observed with Open MPI 5.0.11, or hydra's if its rules were requested.
#include <fmt/format.h>

#include "base/status.h"
#include "launcher/placement/place.h"

namespace regroup::placement {
namespace {

using base::invalid_argument;
using base::Status;
using Map = spec::MapBy::Kind;
using Bind = spec::BindTo::Kind;

void default_map(const spec::Mapping& mapping, Policy& out) {
  if (out.map.kind != Map::kDefault) return;
  if (!mapping.cpu_set.empty()) {
    out.map.kind = Map::kCpuList;
    out.map.cpu_list = mapping.cpu_set;
  } else if (out.map.cpus > 0 || mapping.bind.kind == Bind::kNone ||
             mapping.bind.kind == Bind::kCpuList) {
    out.map.kind = Map::kSlot;
  } else {
    out.map.kind = Map::kUnit;
    out.map.unit = mapping.bind.kind == Bind::kUnit ? mapping.bind.unit
                   : out.hwthreads                  ? spec::Unit::kHwThread
                                                    : spec::Unit::kCore;
  }
}

constexpr std::uint32_t kFewMembers = 2;  // are bound to cores where a mapping names no object

spec::Unit cpu_unit(const Policy& policy) {
  return policy.hwthreads ? spec::Unit::kHwThread : spec::Unit::kCore;
}

bool by_unit(const spec::MapBy& map) { return map.kind == Map::kUnit || map.kind == Map::kPerUnit; }

// Members are counted on each host, and go to no object within it.
bool by_host(const spec::MapBy& map) {
  return map.cpus == 0 &&
         (map.kind == Map::kSlot || (by_unit(map) && map.unit == spec::Unit::kNode));
}

void default_bind(const PlaceRequest& request, Policy& out) {
  const spec::BindTo& bind = request.mapping.bind;
  out.bind_asked = bind.kind != Bind::kDefault && bind.kind != Bind::kNone;
  out.bound = true;
  if (bind.kind == Bind::kUnit) {
    out.bind_unit = bind.unit;
  } else if (by_host(out.map)) {
    const bool few = request.members_of_job() <= kFewMembers;
    out.bind_unit = few ? cpu_unit(out) : spec::Unit::kNuma;
  } else {
    out.bind_unit = out.map.cpus > 0 || !by_unit(out.map) ? cpu_unit(out) : out.map.unit;
  }
  const bool exact =
      out.map.cpus > 0 || out.map.kind == Map::kRankFile || out.map.kind == Map::kCpuList;
  if (!request.why_unbound.empty()) {
    out.why_unbound = request.why_unbound;
  } else if (bind.kind == Bind::kNone) {
    out.why_unbound = "--bind-to none";
  } else if (bind.kind == Bind::kDefault && request.compat == spec::Compat::kMpich && !exact) {
    out.why_unbound = "-bind-to is not given";
  } else if (bind.kind == Bind::kDefault && request.oversubscribe && !exact) {
    out.why_unbound = "members may outnumber the slots";
  }
  out.bound = out.why_unbound.empty();
}

Status contradiction(const PlaceRequest& request, const Policy& policy) {
  const spec::BindTo& bind = request.mapping.bind;
  if (policy.map.cpus > 0 && request.compat == spec::Compat::kOpenMpi &&
      bind.kind != Bind::kDefault &&
      !(bind.kind == Bind::kUnit && bind.unit <= spec::Unit::kCore)) {
    return invalid_argument(
        fmt::format("PE={} binds each member to its cores: requires --bind-to core or hwthread",
                    policy.map.cpus));
  }
  if (request.compat == spec::Compat::kOpenMpi && binds_beyond_map(request.mapping)) {
    return invalid_argument(
        fmt::format("--bind-to {0} with --map-by {1}: a {1} lies within a {0}; bind to the mapped "
                    "object or to a part of it",
                    spec::unit_name(bind.unit), spec::unit_name(policy.map.unit)));
  }
  if (policy.map.kind == Map::kDistance) {
    return invalid_argument(
        "--map-by dist: expected --map-by device=NAME, for example device=mlx5_0; --map-by numa "
        "distributes "
        "members over NUMA nodes");
  }
  return {};
}

// With ranking by object, and with ppr, consecutive ranks stay together; any other ranking, and
// that of a mapping that spans hosts, goes round robin over objects.
void default_rank(const spec::Mapping& mapping, Policy& out) {
  const spec::RankBy& rank = mapping.rank;
  out.rank_unit = out.map_unit;
  if (rank.kind == spec::RankBy::Kind::kDefault) {
    out.fill = !out.map.span && !rank.span;
  } else if (out.map.kind == Map::kPerUnit) {
    out.fill = rank.kind != spec::RankBy::Kind::kSpan && !rank.span;
  } else {
    out.fill = rank.kind == spec::RankBy::Kind::kFill || rank.fill;
  }
  if (rank.kind != spec::RankBy::Kind::kUnit || rank.fill) return;
  out.fill = rank.unit < out.map_unit;
  out.rank_unit = rank.unit;
}

}  // namespace

bool binds_beyond_map(const spec::Mapping& mapping) {
  return by_unit(mapping.map) && mapping.map.cpus == 0 && mapping.bind.kind == Bind::kUnit &&
         mapping.map.unit < mapping.bind.unit;
}

base::Result<Policy> policy_of(const PlaceRequest& request) {
  const spec::Mapping& mapping = request.mapping;
  Policy out;
  out.map = mapping.map;
  out.hwthreads = mapping.map.hwthread_cpus.value_or(false);
  default_map(mapping, out);
  // Binds to a thread: two members bound to the same core would seem to have places of their own.
  if (by_unit(out.map) && out.map.unit == spec::Unit::kHwThread) out.hwthreads = true;
  default_bind(request, out);
  REGROUP_RETURN_IF_ERROR(contradiction(request, out));
  if (out.bind_unit == spec::Unit::kHwThread) out.hwthreads = true;
  if (by_unit(out.map)) out.map_unit = out.map.unit;
  out.cpus = out.map.cpus > 0 ? out.map.cpus : 1;
  default_rank(mapping, out);
  return out;
}

bool needs_topology(const Policy& policy) {
  if (policy.bound) return true;
  return policy.map.kind == Map::kPerUnit ||
         (policy.map.kind == Map::kUnit && policy.map_unit > spec::Unit::kCore);
}

}  // namespace regroup::placement
