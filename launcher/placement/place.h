// Which processors members get on one host: mapping, ranking and binding of mpirun, as a pure
// function. Over hosts and GPUs: job_place.h.
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
  bool oversubscribe = false;    // was said: members are not bound unless a binding is asked for
  std::string why_unbound = {};  // nobody is bound, for this reason; "": as the mapping says

  [[nodiscard]] std::uint32_t members() const {
    return std::accumulate(counts.begin(), counts.end(), 0U);
  }
};

// --bind-to names something that what --map-by names is only a part of.
[[nodiscard]] bool binds_beyond_map(const spec::Mapping& mapping);

// What a request comes to with the defaults filled in.
struct Policy {
  spec::MapBy map;
  // Members are dealt out over these; kNode: one after the other.
  spec::Unit map_unit = spec::Unit::kNode;
  bool fill = false;  // neighbours in rank share a unit, else ranks go round ...
  spec::Unit rank_unit = spec::Unit::kNode;  // ... these
  bool bound = false;
  bool bind_asked = false;  // in so many words: then what cannot be done is an error
  spec::Unit bind_unit = spec::Unit::kCore;
  std::uint32_t cpus = 1;   // of each member
  bool hwthreads = false;   // a cpu is a hardware thread, else a core
  std::string why_unbound;  // of a job that is not bound
};

// Errors: kInvalidArgument names the options that contradict each other.
[[nodiscard]] base::Result<Policy> policy_of(const PlaceRequest& request);

// Whether place_on_processors() needs to know the machine, or leaves every member where the system
// puts it.
[[nodiscard]] bool needs_topology(const Policy& policy);

struct Slot {
  std::vector<int> cpus;        // operating system numbers to bind to; empty: not bound
  topology::ThreadSet threads;  // the same, as indices into the topology
  std::string object;           // that it was mapped to: "package 1"
  std::string why;              // a sentence
  bool operator==(const Slot&) const = default;
};

struct Placement {
  Policy policy;
  std::vector<Slot> ranks;
};

// One slot for each rank. kInvalidArgument: what was asked for does not exist or contradicts
// itself; kResourceExhausted: it does not fit. Messages begin with the option and name what there
// is.
[[nodiscard]] base::Result<Placement> place_on_processors(const topology::Topology& topology,
                                                          const PlaceRequest& request);

// As Open MPI 5 writes a binding: "package[0][core:L0-1] package[1][core:L4]", "package[0][hwt:L3]"
// if a cpu is a hardware thread, "UNBOUND".
[[nodiscard]] std::string binding_text(const topology::Topology& topology,
                                       const topology::ThreadSet& threads, bool hwthreads);

// As Open MPI tells its processes where they are: "SK0:L30:L20:L10:CR0:HT0:NM0", by logical
// numbers; "" if not bound.
[[nodiscard]] std::string locality_text(const topology::Topology& topology,
                                        const topology::ThreadSet& threads);

// How often the request's ppr:N:OBJECT gives N members on this machine, together; 0 if it has no
// ppr.
[[nodiscard]] std::uint32_t members_of_ppr(const topology::Topology& topology,
                                           const spec::Mapping& mapping);

}  // namespace regroup::placement
