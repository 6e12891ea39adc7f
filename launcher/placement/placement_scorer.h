// Scores sets of GPUs of one machine: by predicted bandwidth first, then by what remains for other
// jobs.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "launcher/placement/rings.h"

namespace regroup::placement {

// A set of GPUs of one machine: bit i is Machine::gpus[i]. Machines with more are refused earlier.
using GpuSet = std::uint64_t;
inline constexpr std::size_t kMostGpus = 64;
using NicSet = std::uint64_t;  // bit i: Machine::nics[i]; only the first 64

[[nodiscard]] constexpr std::uint32_t count_of(GpuSet set) {
  return static_cast<std::uint32_t>(std::popcount(set));
}
[[nodiscard]] constexpr GpuSet bit_of(std::size_t gpu) { return GpuSet{1} << gpu; }
[[nodiscard]] std::vector<std::uint32_t> members_of(GpuSet set);

// True if a and b are equal except for rounding errors.
[[nodiscard]] bool about_equal(double a, double b);

enum class RingScope : std::uint8_t {
  kInside,   // rings stay within one machine
  kOutward,  // rings continue to other machines through NICs
};

// The score of a set, compared lexicographically. More is better, except for `numas`.
struct PlacementScore {
  double gbytes = 0;         // GB/s of the set's rings
  std::uint32_t nics = 0;    // kOutward: number of NICs nearest to its GPUs, at most one per GPU
  std::uint32_t numas = 0;   // number of NUMA nodes that it spans
  double rest = 0;           // GB/s of rings over the GPUs that remain free, as one job
  double memory_gbytes = 0;  // GB/s from each GPU to host memory, all GPUs of the set at once

  [[nodiscard]] bool better_than(const PlacementScore& other) const;
};

struct GpuSetChoice {
  GpuSet gpus = 0;
  PlacementScore score;
};

// Caches its results. Used by one thread at a time.
class PlacementScorer {
 public:
  // `machine` must outlive this, and has at most kMostGpus GPUs.
  explicit PlacementScorer(const topology::Machine& machine);

  [[nodiscard]] const Routes& routes() const { return routes_; }
  [[nodiscard]] const RingPlan& rings(GpuSet gpus, RingScope reach);
  [[nodiscard]] double memory_gbytes(GpuSet gpus) const;
  [[nodiscard]] std::uint32_t numas(GpuSet gpus) const;
  // Number of NICs nearest to `gpus`, at most the number of GPUs.
  [[nodiscard]] std::uint32_t nearest_nics(GpuSet gpus) const;
  [[nodiscard]] double nic_gbytes() const;  // of all NICs together
  // An upper bound of the GB/s of any `count` GPUs of `free`.
  [[nodiscard]] double bound(GpuSet free, std::uint32_t count, RingScope reach) const;
  // The outward bounds for 0, 1, ... GPUs of `free`.
  [[nodiscard]] std::vector<double> outward_bounds(GpuSet free) const;
  // The outward rings that use only these NICs.
  [[nodiscard]] const RingPlan& rings_through(GpuSet gpus, NicSet nics);

  // The best `count` GPUs of `free`, including all of `keep`; 1 <= count <= |free|. Tries all sets
  // if there are at most 256 (machines with 8 GPUs); otherwise grows a set from each GPU and
  // improves it by exchanges.
  [[nodiscard]] GpuSetChoice best(GpuSet free, std::uint32_t count, GpuSet keep, RingScope reach);
  // The score of the set `gpus`, taken from `free`.
  [[nodiscard]] PlacementScore score(GpuSet gpus, GpuSet free, RingScope reach);

 private:
  struct Search;
  [[nodiscard]] double port(std::uint32_t gpu, GpuSet towards, RingScope reach) const;
  [[nodiscard]] bool reaches(GpuSet gpus, RingScope reach, double least) const;
  void try_set(Search& search, GpuSet gpus);
  void try_all(Search& search);
  void try_grown(Search& search);
  [[nodiscard]] bool fills_nics(const Search& search) const;
  [[nodiscard]] GpuSet grown_from(const Search& search, std::uint32_t seed, bool over_nics) const;

  const topology::Machine& machine_;
  Routes routes_;
  std::vector<std::uint32_t> nic_ends_;
  std::vector<double> outward_ports_;  // GB/s of the links next to each GPU that lead to NICs
  std::vector<NicSet> near_nics_;      // nearest_nics() (device_ranks.h) of each GPU
  std::map<GpuSet, RingPlan> plans_[2];
  std::map<std::pair<GpuSet, NicSet>, RingPlan> through_;
  std::map<std::pair<std::pair<GpuSet, GpuSet>, std::uint32_t>, GpuSetChoice> choices_[2];
};

}  // namespace regroup::placement
