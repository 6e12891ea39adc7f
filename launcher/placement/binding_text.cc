// Bindings in the words of Open MPI 5: its cores have logical numbers, its hardware threads those of the
// operating system, whatever the L says.
#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "launcher/placement/place.h"

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

std::string locality_text(const Topology& topology, const ThreadSet& threads) {
  constexpr std::pair<const char*, Unit> kParts[] = {
      {"SK", Unit::kPackage}, {"L3", Unit::kL3Cache},  {"L2", Unit::kL2Cache}, {"L1", Unit::kL1Cache},
      {"CR", Unit::kCore},    {"HT", Unit::kHwThread}, {"NM", Unit::kNuma}};
  std::string out;
  for (const auto& [name, unit] : kParts) {
    std::set<int> numbers;
    for (const std::uint32_t index : threads) {
      const std::uint32_t part = topology.threads[index].part(unit);
      if (part != kNoPart) numbers.insert(static_cast<int>(part));
    }
    if (numbers.empty()) continue;
    out += fmt::format("{}{}{}", out.empty() ? "" : ":", name, ranges({numbers.begin(), numbers.end()}));
  }
  return out;
}

}  // namespace regroup::launcher
