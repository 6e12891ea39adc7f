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

// A hardware thread, and for each Unit the number of the part that it belongs to. Numbers are
// logical: they follow hwloc's order, in which consecutive parts are close.
struct HwThread {
  int os = 0;  // operating system number
  // Indexed by Unit; kNoPart: in no such part.
  std::array<std::uint32_t, static_cast<int>(spec::Unit::kNode) + 1> parts{};

  [[nodiscard]] std::uint32_t part(spec::Unit unit) const {
    return parts[static_cast<std::size_t>(unit)];
  }
  bool operator==(const HwThread&) const = default;
};

struct Topology {
  std::vector<HwThread> threads;               // in logical order
  std::string model;                           // of the processors; "": unknown
  std::vector<std::uint64_t> numa_bytes;       // memory of each NUMA node
  std::array<std::uint64_t, 3> cache_bytes{};  // sizes of one L1, L2 and L3; 0: none
  bool this_machine = true;                    // processes can be bound to its threads
  bool operator==(const Topology&) const = default;
};

// Indices into Topology::threads, ascending.
using ThreadSet = std::vector<std::uint32_t>;

// The threads of each part of one kind, in logical order. kNode: a single part with all threads.
[[nodiscard]] std::vector<ThreadSet> parts_of(const Topology& topology, spec::Unit unit);

// The topology with only the threads `cpus` (operating system numbers). Parts keep their numbers.
[[nodiscard]] Topology restricted(Topology topology, const std::vector<int>& cpus);

// The operating system numbers of these threads, ascending.
[[nodiscard]] std::vector<int> os_numbers(const Topology& topology, const ThreadSet& threads);

// "0-2,5"
[[nodiscard]] std::string ranges(const std::vector<int>& ascending);

// Several lines for the user: packages, NUMA nodes, caches and their cores.
[[nodiscard]] std::string describe(const Topology& topology, std::string_view host);

}  // namespace regroup::topology
