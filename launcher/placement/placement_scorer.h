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

// GPUs of one machine by their index in Machine::gpus; more than 64 are refused before.
using GpuSet = std::uint64_t;
inline constexpr std::size_t kMostGpus = 64;
using NicSet = std::uint64_t;  // the first 64 of a machine, by their index in Machine::nics

[[nodiscard]] constexpr std::uint32_t count_of(GpuSet set) {
  return static_cast<std::uint32_t>(std::popcount(set));
}
[[nodiscard]] constexpr GpuSet bit_of(std::size_t gpu) { return GpuSet{1} << gpu; }
[[nodiscard]] std::vector<std::uint32_t> members_of(GpuSet set);

// Floating point apart, the same.
[[nodiscard]] bool about_equal(double a, double b);

// Where a job's rings stay.
enum class RingScope : std::uint8_t {
  kInside,
  kOutward
};  // in one machine; through its NICs to others

// The score of a set, compared lexicographically. More is better, except for `numas`.
struct PlacementScore {
  double gbytes = 0;        // of its rings
  std::uint32_t nics = 0;   // outward, that are nearest to some GPU of it: no more than it has GPUs
  std::uint32_t numas = 0;  // NUMA nodes that it spans
  double rest = 0;          // of rings over the GPUs that stay free, as one job
  double memory_gbytes = 0;  // of each GPU to its processor's memory, all of the set at once

  [[nodiscard]] bool better_than(const PlacementScore& other) const;
};

struct GpuSetChoice {
  GpuSet gpus = 0;
  PlacementScore score;
};

// Remembers what it has worked out; one thread at a time.
class PlacementScorer {
 public:
  // `machine` outlives this; it has at most kMostGpus.
  explicit PlacementScorer(const topology::Machine& machine);

  [[nodiscard]] const Routes& routes() const { return routes_; }
  [[nodiscard]] const RingPlan& rings(GpuSet gpus, RingScope reach);
  [[nodiscard]] double memory_gbytes(GpuSet gpus) const;
  [[nodiscard]] std::uint32_t numas(GpuSet gpus) const;
  // How many, up to the number of GPUs.
  [[nodiscard]] std::uint32_t nearest_nics(GpuSet gpus) const;
  [[nodiscard]] double nic_gbytes() const;  // of all NICs' wires together
  // At most this is possible for `count` of `free`.
  [[nodiscard]] double bound(GpuSet free, std::uint32_t count, RingScope reach) const;
  // The same for 0, 1, ... of `free`, outward.
  [[nodiscard]] std::vector<double> outward_bounds(GpuSet free) const;
  // Outward, through these NICs only (bit i: Machine::nics[i]).
  [[nodiscard]] const RingPlan& rings_through(GpuSet gpus, NicSet nics);

  // The best `count` GPUs of `free` with all of `keep` among them. Up to 256 sets are all tried,
  // which covers machines of 8; of more, sets grown from each GPU are improved by exchanges. 1 <=
  // count <= |free|.
  [[nodiscard]] GpuSetChoice best(GpuSet free, std::uint32_t count, GpuSet keep, RingScope reach);
  // What a set scores that is taken from `free`.
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
  std::vector<double> outward_ports_;  // by GPU: of the links next to it that lead to NICs
  std::vector<NicSet> near_nics_;      // by GPU: nearest_nics() of device_ranks.h
  std::map<GpuSet, RingPlan> plans_[2];
  std::map<std::pair<GpuSet, NicSet>, RingPlan> through_;
  std::map<std::pair<std::pair<GpuSet, GpuSet>, std::uint32_t>, GpuSetChoice> choices_[2];
};

}  // namespace regroup::placement
