// The processors of one machine as plain data: packages, NUMA nodes, caches, cores and hardware
// threads.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launcher/spec/mapping.h"

namespace regroup::topology {

inline constexpr std::uint32_t kNoPart = UINT32_MAX;

// A hardware thread, and the number of the part of each kind that it belongs to. Numbers are
// logical: they count in the order of hwloc, in which neighbours are near.
struct HwThread {
  int os = 0;  // number of the operating system
  // By Unit; kNoPart: in none.
  std::array<std::uint32_t, static_cast<int>(spec::Unit::kNode) + 1> parts{};

  [[nodiscard]] std::uint32_t part(spec::Unit unit) const {
    return parts[static_cast<std::size_t>(unit)];
  }
  bool operator==(const HwThread&) const = default;
};

struct Topology {
  std::vector<HwThread> threads;               // in logical order
  std::string model;                           // of the processors; "": not known
  std::vector<std::uint64_t> numa_bytes;       // memory of each NUMA node
  std::array<std::uint64_t, 3> cache_bytes{};  // of one L1, L2, L3; 0: there is none
  bool this_machine = true;                    // its numbers can be bound to
  bool operator==(const Topology&) const = default;
};

// Indices into Topology::threads, ascending.
using ThreadSet = std::vector<std::uint32_t>;

// The parts of one kind, in logical order, each with its threads. kNode: one with all of them.
[[nodiscard]] std::vector<ThreadSet> parts_of(const Topology& topology, spec::Unit unit);

// What is left when only these may be used (operating system numbers). Parts keep their numbers.
[[nodiscard]] Topology restricted(Topology topology, const std::vector<int>& cpus);

// Ascending operating system numbers of these threads.
[[nodiscard]] std::vector<int> os_numbers(const Topology& topology, const ThreadSet& threads);

// "0-2,5"
[[nodiscard]] std::string ranges(const std::vector<int>& ascending);

// Several lines for people: packages, NUMA nodes, caches and the cores in them.
[[nodiscard]] std::string describe(const Topology& topology, std::string_view host);

}  // namespace regroup::topology
