// Queries on a Topology, and its description as text.
#include "launcher/topology/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace regroup::topology {
namespace {

std::string size_text(std::uint64_t bytes) {
  static constexpr std::pair<int, const char*> kUnits[] = {
      {40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}};
  for (const auto& [shift, name] : kUnits) {
    if (bytes >> shift == 0) continue;
    const double value = static_cast<double>(bytes) / static_cast<double>(1ULL << shift);
    return value < 10 && bytes % (1ULL << shift) != 0 ? fmt::format("{:.1f} {}", value, name)
                                                      : fmt::format("{:.0f} {}", value, name);
  }
  return fmt::format("{} B", bytes);
}

std::string counted(std::size_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

// Groups `threads` by the parts of one kind; threads in no such part form a group of their own.
std::vector<std::pair<std::uint32_t, ThreadSet>> split(const Topology& topology,
                                                       const ThreadSet& threads, spec::Unit unit) {
  std::map<std::uint32_t, ThreadSet> found;
  for (const std::uint32_t thread : threads)
    found[topology.threads[thread].part(unit)].push_back(thread);
  return {found.begin(), found.end()};
}

std::string cores_line(const Topology& topology, const ThreadSet& threads) {
  std::vector<int> cores;
  for (const auto& [number, set] : split(topology, threads, spec::Unit::kCore))
    cores.push_back(static_cast<int>(number));
  return fmt::format("{} {} (processors {})", cores.size() == 1 ? "core" : "cores", ranges(cores),
                     ranges(os_numbers(topology, threads)));
}

void describe_caches(const Topology& topology, const ThreadSet& threads, std::string& out) {
  if (topology.cache_bytes[2] == 0) {
    out += fmt::format("      {}\n", cores_line(topology, threads));
    return;
  }
  for (const auto& [number, set] : split(topology, threads, spec::Unit::kL3Cache)) {
    const std::string cache =
        number == kNoPart ? "no L3"
                          : fmt::format("L3 {}, {}", number, size_text(topology.cache_bytes[2]));
    out += fmt::format("      {}: {}\n", cache, cores_line(topology, set));
  }
}

std::string numa_name(const Topology& topology, std::uint32_t number) {
  if (number >= topology.numa_bytes.size()) return "no NUMA node";
  const std::uint64_t bytes = topology.numa_bytes[number];
  return fmt::format("NUMA node {}{}{}", number, bytes == 0 ? "" : ", ",
                     bytes == 0 ? "" : size_text(bytes));
}

}  // namespace

std::vector<ThreadSet> parts_of(const Topology& topology, spec::Unit unit) {
  ThreadSet all;
  for (std::uint32_t i = 0; i < topology.threads.size(); ++i) all.push_back(i);
  std::vector<ThreadSet> out;
  for (auto& [number, set] : split(topology, all, unit)) {
    if (number != kNoPart) out.push_back(std::move(set));
  }
  return out;
}

Topology restricted(Topology topology, const std::vector<int>& cpus) {
  std::erase_if(topology.threads, [&cpus](const HwThread& thread) {
    return std::find(cpus.begin(), cpus.end(), thread.os) == cpus.end();
  });
  return topology;
}

std::vector<int> os_numbers(const Topology& topology, const ThreadSet& threads) {
  std::vector<int> out;
  for (const std::uint32_t thread : threads) out.push_back(topology.threads[thread].os);
  std::sort(out.begin(), out.end());
  return out;
}

std::string ranges(const std::vector<int>& ascending) {
  std::string out;
  for (std::size_t i = 0; i < ascending.size();) {
    std::size_t last = i;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    out += fmt::format("{}{}", out.empty() ? "" : ",", ascending[i]);
    if (last > i) out += fmt::format("-{}", ascending[last]);
    i = last + 1;
  }
  return out;
}

std::string describe(const Topology& topology, std::string_view host) {
  std::string out =
      fmt::format("host {}: {}, {}, {}, {}\n", host,
                  counted(parts_of(topology, spec::Unit::kPackage).size(), "package", "packages"),
                  counted(parts_of(topology, spec::Unit::kNuma).size(), "NUMA node", "NUMA nodes"),
                  counted(parts_of(topology, spec::Unit::kCore).size(), "core", "cores"),
                  counted(topology.threads.size(), "hardware thread", "hardware threads"));
  for (const ThreadSet& package : parts_of(topology, spec::Unit::kPackage)) {
    out +=
        fmt::format("  package {}{}{}\n", topology.threads[package[0]].part(spec::Unit::kPackage),
                    topology.model.empty() ? "" : ": ", topology.model);
    for (const auto& [number, numa] : split(topology, package, spec::Unit::kNuma)) {
      out += fmt::format("    {}\n", numa_name(topology, number));
      describe_caches(topology, numa, out);
    }
  }
  if (topology.cache_bytes[0] != 0) {
    out += fmt::format(
        "  each core: L1 {}{}\n", size_text(topology.cache_bytes[0]),
        topology.cache_bytes[1] != 0 ? ", L2 " + size_text(topology.cache_bytes[1]) : "");
  }
  return out;
}

}  // namespace regroup::topology
