// Placed members, and what is shown of them. Placing: cluster_view.h.
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

// By program, where its members are placed by GPUs; empty: what the options say.
struct MemberNeeds {
  std::vector<std::uint32_t> gpus;   // of each member
  std::vector<std::uint32_t> cores;  // of each; 0: not said
  std::vector<std::string> roles;
};

struct PlacedJob {
  // By host, where they were needed; empty: they were not.
  std::vector<topology::Topology> topologies;
  JobPlacement placement;
  std::vector<spec::Environment> environments = {};  // by rank, of their devices; empty: no devices
  // Lines: GPUs of other jobs, descriptions that cannot be read.
  std::vector<std::string> warnings = {};
  // By host, as Host::quota; one without an entry has no limit.
  std::vector<std::uint32_t> quotas = {};

  // The topology of the rank's host; null: it was not needed.
  [[nodiscard]] const topology::Topology* topology_of(std::size_t rank) const;
  // The same with a further rank for each free cpu, if members are bound to cpus of their own.
  [[nodiscard]] PlacedJob with_spare() const;
  // By rank, operating system numbers; an empty list: not bound.
  [[nodiscard]] std::vector<std::vector<int>> cores() const;
  // The same for MPI programs; empty if no member is bound.
  [[nodiscard]] std::vector<pmi::Binding> bindings() const;
  // By rank: its share, at least 1, of the cores (or hardware threads, where those are dealt out)
  // that it may use; of all `slots` of its host, if it is not bound; no more than its share of its
  // host's quota.
  [[nodiscard]] std::vector<std::uint32_t> threads(const std::vector<std::uint32_t>& slots) const;
};

// What --display asks for on standard output: topo, allocation, map; "" if nothing. `allocation`:
// the hosts that the placement counts.
[[nodiscard]] std::string display_text(const spec::JobSpec& spec,
                                       const alloc::Allocation& allocation, const PlacedJob& job,
                                       const std::vector<std::uint32_t>& counts);

// A line for each member as --report-bindings of Open MPI 5 has it.
[[nodiscard]] std::string bindings_text(const alloc::Allocation& allocation, const PlacedJob& job,
                                        int pid);

// Writes both where they belong.
void print_display(const spec::JobSpec& spec, const alloc::Allocation& allocation,
                   const PlacedJob& job, const std::vector<std::uint32_t>& counts);

}  // namespace regroup::placement
