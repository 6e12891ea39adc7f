// From options to placed members: reads the machine where that is needed, and shows the result.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "launcher/alloc/allocator.h"
#include "launcher/options/options.h"
#include "launcher/place/place.h"
#include "launcher/pmi/messages.h"
#include "launcher/topo/topology.h"

namespace regroup::launcher {

struct PlacedJob {
  std::optional<Topology> topology;  // where one was needed
  Placement placement;
  std::vector<Environment> environments = {};  // by rank, of their devices; empty: they were given none
  std::vector<std::string> why = {};           // a sentence for each decision on devices

  // The same with a further rank for each cpu that nobody has, where members are bound to cpus of their own.
  [[nodiscard]] PlacedJob with_spare() const;
  // By rank, operating system numbers; an empty list: not bound.
  [[nodiscard]] std::vector<std::vector<int>> cores() const;
  // The same for MPI programs; empty if nobody is bound.
  [[nodiscard]] std::vector<pmi::Binding> bindings() const;
  // By rank: its share, at least 1, of the cores (or hardware threads, where those are dealt out) that it may
  // use; of all `slots`, if it is not bound.
  [[nodiscard]] std::vector<std::uint32_t> threads(std::uint32_t slots) const;
};

// Before members are counted: with --do-not-launch HWLOC_XMLFILE or HWLOC_SYNTHETIC put their machine in
// place of this one; slots may be hardware threads; ppr:N:OBJECT without -np says how many members there are.
[[nodiscard]] core::Status prepare_members(Options& options, Allocation& allocation);

// `counts`: members of each program. Reads the machine only if members are bound, dealt out over its parts,
// or shown. A binding that nobody asked for and that is not possible is left out.
[[nodiscard]] core::Result<PlacedJob> place_members(const Options& options, const Allocation& allocation,
                                                    const std::vector<std::uint32_t>& counts);

// What --display asks for on standard output: topo, allocation, map; "" if nothing.
[[nodiscard]] std::string display_text(const Options& options, const Allocation& allocation,
                                       const PlacedJob& job, const std::vector<std::uint32_t>& counts);

// A line for each member as --report-bindings of Open MPI 5 has it.
[[nodiscard]] std::string bindings_text(const Allocation& allocation, const PlacedJob& job, int pid);

// Writes both where they belong.
void print_display(const Options& options, const Allocation& allocation, const PlacedJob& job,
                   const std::vector<std::uint32_t>& counts);

}  // namespace regroup::launcher
