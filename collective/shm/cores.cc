// Checks Hall's condition for the given affinity sets and their union. Checking all unions of sets
// would take exponential time; and launchers bind to single cores or to nested parts of a machine,
// for which this check is exact.
#include "collective/shm/cores.h"

#include <sched.h>

#include <algorithm>
#include <bit>

namespace regroup::collective::shm {
namespace {

bool holds(const Cores& all, const Cores& some) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    if ((some[i] & ~all[i]) != 0) return false;
  }
  return true;
}

}  // namespace

Cores own_cores() {
  Cores cores{};
  static_assert(sizeof cores == sizeof(cpu_set_t));
  if (::sched_getaffinity(0, sizeof cores, reinterpret_cast<cpu_set_t*>(cores.data())) < 0)
    cores = {};
  return cores;
}

std::size_t count(const Cores& cores) {
  std::size_t sum = 0;
  for (const std::uint64_t word : cores) sum += static_cast<std::size_t>(std::popcount(word));
  return sum;
}

bool suffice(std::span<const Cores> cores, std::size_t ranks) {
  Cores all{};
  for (const Cores& one : cores) {
    const auto confined =
        std::ranges::count_if(cores, [&](const Cores& other) { return holds(one, other); });
    if (static_cast<std::size_t>(confined) > count(one)) return false;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] |= one[i];
  }
  return ranks <= count(all);
}

}  // namespace regroup::collective::shm
