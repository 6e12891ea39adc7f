// The placed members of a job, and their display. cluster_view.h places them.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/alloc/allocator.h"
#include "launcher/placement/job_place.h"
#include "launcher/pmi/messages.h"
#include "launcher/spec/job_spec.h"
#include "launcher/topology/topology.h"

namespace regroup::placement {

// The needs of each program's members, if they are placed by GPUs; empty: the options decide.
struct MemberNeeds {
  std::vector<std::uint32_t> gpus;   // per member
  std::vector<std::uint32_t> cores;  // per member; 0: not requested
  std::vector<std::string> roles;
};

struct PlacedJob {
  // The topology of each host; empty: they were not needed.
  std::vector<topology::Topology> topologies;
  JobPlacement placement;
  std::vector<spec::Environment> environments = {};  // device variables of each rank; empty: none
  // Lines for the user: GPUs of other jobs, unreadable descriptions.
  std::vector<std::string> warnings = {};
  // Host::quota of each host; a host without an entry has no limit.
  std::vector<std::uint32_t> quotas = {};

  // The topology of the rank's host; null: it was not needed.
  [[nodiscard]] const topology::Topology* topology_of(std::size_t rank) const;
  // This job with one more rank for each free cpu, if members are bound to cpus of their own.
  [[nodiscard]] PlacedJob with_spare() const;
  // The operating system numbers of each rank's cpus; an empty list: not bound.
  [[nodiscard]] std::vector<std::vector<int>> cores() const;
  // The bindings for MPI programs; empty if no member is bound.
  [[nodiscard]] std::vector<pmi::Binding> bindings() const;
  // The number of threads for each rank, at least 1: its share of the cores (or hardware threads,
  // if those are slots) to which it is bound, else of all `slots` of its host; at most its share of
  // its host's quota.
  [[nodiscard]] std::vector<std::uint32_t> threads(const std::vector<std::uint32_t>& slots) const;
};

// The output of --display (topo, allocation, map); "" if not requested. `allocation`: the hosts of
// the placement, in the same order.
[[nodiscard]] std::string display_text(const spec::JobSpec& spec,
                                       const alloc::Allocation& allocation, const PlacedJob& job,
                                       const std::vector<std::uint32_t>& counts);

// One line per member, in the format of Open MPI 5's --report-bindings.
[[nodiscard]] std::string bindings_text(const alloc::Allocation& allocation, const PlacedJob& job,
                                        int pid);

// Prints display_text() and bindings_text(), as far as the options request them.
void print_display(const spec::JobSpec& spec, const alloc::Allocation& allocation,
                   const PlacedJob& job, const std::vector<std::uint32_t>& counts);

}  // namespace regroup::placement
