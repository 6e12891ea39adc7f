// Places members on the processors of one host: mpirun's mapping, ranking and binding, as pure
// functions. job_place.h places over hosts and GPUs.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/spec/mapping.h"
#include "launcher/spec/request.h"
#include "launcher/topology/topology.h"

namespace regroup::placement {

struct PlaceRequest {
  spec::Mapping mapping;
  spec::Compat compat = spec::Compat::kOpenMpi;
  // Members of each program; ranks go through the programs in order.
  std::vector<std::uint32_t> counts;
  bool oversubscribe = false;     // requested: members are bound only if that is requested too
  std::string why_unbound = {};   // no member is bound, for this reason; "": the mapping decides
  std::uint32_t job_members = 0;  // members on all hosts; 0: all are on this one

  [[nodiscard]] std::uint32_t members() const {
    return std::accumulate(counts.begin(), counts.end(), 0U);
  }
  [[nodiscard]] std::uint32_t members_of_job() const {
    return job_members == 0 ? members() : job_members;
  }
};

// True if the object of --bind-to is larger than that of --map-by.
[[nodiscard]] bool binds_beyond_map(const spec::Mapping& mapping);

// A request with the defaults filled in.
struct Policy {
  spec::MapBy map;
  // Members go round robin over units of this kind; kNode: one after the other.
  spec::Unit map_unit = spec::Unit::kNode;
  bool fill = false;  // consecutive ranks share a unit; else ranks go round robin over rank_unit
  spec::Unit rank_unit = spec::Unit::kNode;
  bool bound = false;
  bool bind_asked = false;  // the user requested a binding: an impossible one is an error
  spec::Unit bind_unit = spec::Unit::kCore;
  std::uint32_t cpus = 1;   // per member
  bool hwthreads = false;   // a cpu is a hardware thread; else a core
  std::string why_unbound;  // if not bound: the reason
};

// Fills in the defaults. kInvalidArgument names the options that contradict each other.
[[nodiscard]] base::Result<Policy> policy_of(const PlaceRequest& request);

// True if place_on_processors() needs the machine's topology; false: it binds no member.
[[nodiscard]] bool needs_topology(const Policy& policy);

struct Slot {
  std::vector<int> cpus;        // operating system numbers to bind to; empty: not bound
  topology::ThreadSet threads;  // the same, as indices into the topology
  std::string object;           // the object that the rank was mapped to: "package 1"
  std::string why;              // the reason for this placement, a sentence
  bool operator==(const Slot&) const = default;
};

struct Placement {
  Policy policy;
  std::vector<Slot> ranks;
};

// Places the ranks, one slot each. kInvalidArgument: the request names something that does not
// exist, or is inconsistent. kResourceExhausted: it does not fit. Messages begin with the option
// and say what is available.
[[nodiscard]] base::Result<Placement> place_on_processors(const topology::Topology& topology,
                                                          const PlaceRequest& request);

// A binding in Open MPI 5's format: "package[0][core:L0-1] package[1][core:L4]",
// "package[0][hwt:L3]" if a cpu is a hardware thread, "UNBOUND".
[[nodiscard]] std::string binding_text(const topology::Topology& topology,
                                       const topology::ThreadSet& threads, bool hwthreads);

// The locality string that Open MPI gives its processes, "SK0:L30:L20:L10:CR0:HT0:NM0", by logical
// numbers; "" if not bound.
[[nodiscard]] std::string locality_text(const topology::Topology& topology,
                                        const topology::ThreadSet& threads);

// The number of members that the mapping's ppr:N:OBJECT gives on this machine; 0 if it has no ppr.
[[nodiscard]] std::uint32_t members_of_ppr(const topology::Topology& topology,
                                           const spec::Mapping& mapping);

}  // namespace regroup::placement
