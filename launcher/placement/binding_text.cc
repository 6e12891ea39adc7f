// Bindings in Open MPI 5's format: its core numbers are logical, its hardware thread numbers are
// the operating system's, in spite of the L.
#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "launcher/placement/place.h"

namespace regroup::placement {

std::string binding_text(const topology::Topology& topology, const topology::ThreadSet& threads,
                         bool hwthreads) {
  if (threads.empty()) return "UNBOUND";
  std::map<std::uint32_t, std::set<int>> packages;
  for (const std::uint32_t index : threads) {
    const topology::HwThread& thread = topology.threads[index];
    packages[thread.part(spec::Unit::kPackage)].insert(
        hwthreads ? thread.os : static_cast<int>(thread.part(spec::Unit::kCore)));
  }
  std::string out;
  for (const auto& [package, cpus] : packages) {
    out += fmt::format("{}package[{}][{}:L{}]", out.empty() ? "" : " ", package,
                       hwthreads ? "hwt" : "core", topology::ranges({cpus.begin(), cpus.end()}));
  }
  return out;
}

std::string locality_text(const topology::Topology& topology, const topology::ThreadSet& threads) {
  constexpr std::pair<const char*, spec::Unit> kParts[] = {
      {"SK", spec::Unit::kPackage}, {"L3", spec::Unit::kL3Cache}, {"L2", spec::Unit::kL2Cache},
      {"L1", spec::Unit::kL1Cache}, {"CR", spec::Unit::kCore},    {"HT", spec::Unit::kHwThread},
      {"NM", spec::Unit::kNuma}};
  std::string out;
  for (const auto& [name, unit] : kParts) {
    std::set<int> numbers;
    for (const std::uint32_t index : threads) {
      const std::uint32_t part = topology.threads[index].part(unit);
      if (part != topology::kNoPart) numbers.insert(static_cast<int>(part));
    }
    if (numbers.empty()) continue;
    out += fmt::format("{}{}{}", out.empty() ? "" : ":", name,
                       topology::ranges({numbers.begin(), numbers.end()}));
  }
  return out;
}

}  // namespace regroup::placement
