// Bindings in the words of Open MPI 5: its cores have logical numbers, its hardware threads those of the
// operating system, whatever the L says.
#include <fmt/format.h>

#include <map>
#include <set>

#include "launcher/place/place.h"

namespace regroup::launcher {

std::string binding_text(const Topology& topology, const ThreadSet& threads, bool hwthreads) {
  if (threads.empty()) return "UNBOUND";
  std::map<std::uint32_t, std::set<int>> packages;
  for (const std::uint32_t index : threads) {
    const HwThread& thread = topology.threads[index];
    packages[thread.part(Unit::kPackage)].insert(hwthreads ? thread.os
                                                           : static_cast<int>(thread.part(Unit::kCore)));
  }
  std::string out;
  for (const auto& [package, cpus] : packages) {
    out += fmt::format("{}package[{}][{}:L{}]", out.empty() ? "" : " ", package, hwthreads ? "hwt" : "core",
                       ranges({cpus.begin(), cpus.end()}));
  }
  return out;
}

}  // namespace regroup::launcher
