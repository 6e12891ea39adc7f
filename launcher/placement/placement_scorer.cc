// Tries all sets if there are few. Otherwise grows a set from each GPU along the widest paths, and
// improves the best of these by exchanges.
#include "launcher/placement/placement_scorer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

#include "launcher/placement/device_ranks.h"

namespace regroup::placement {

namespace {

constexpr std::size_t kMostSets = 256;       // up to this number, all sets are tried
constexpr std::size_t kMostTurns = 1 << 14;  // limit of exchanges: GPUs times sets tried

// The number of ways to choose `count` of `from`, or some number above kMostSets.
std::size_t ways(std::uint32_t from, std::uint32_t count) {
  count = std::min(count, from - count);
  std::size_t out = 1;
  for (std::uint32_t i = 1; i <= count && out <= kMostSets; ++i) out = out * (from - count + i) / i;
  return out;
}

// The next larger number with as many bits set (Gosper); `set` is not 0.
GpuSet next_subset(GpuSet set) {
  const GpuSet low = set & -set, up = set + low;
  return up == 0 ? 0 : up | (((set ^ up) >> 2) / low);
}

// Deposits the bits of `chosen` at the positions of the ones of `among` (PDEP).
GpuSet spread_over(GpuSet chosen, const std::vector<std::uint32_t>& among) {
  GpuSet out = 0;
  for (; chosen != 0; chosen &= chosen - 1)
    out |= bit_of(among[static_cast<std::size_t>(std::countr_zero(chosen))]);
  return out;
}

}  // namespace

std::vector<std::uint32_t> members_of(GpuSet set) {
  std::vector<std::uint32_t> out;
  for (; set != 0; set &= set - 1) out.push_back(static_cast<std::uint32_t>(std::countr_zero(set)));
  return out;
}

bool about_equal(double a, double b) {
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b));
}

bool PlacementScore::better_than(const PlacementScore& other) const {
  if (!about_equal(gbytes, other.gbytes)) return gbytes > other.gbytes;
  if (nics != other.nics) return nics > other.nics;
  if (numas != other.numas) return numas < other.numas;
  if (!about_equal(rest, other.rest)) return rest > other.rest;
  return !about_equal(memory_gbytes, other.memory_gbytes) && memory_gbytes > other.memory_gbytes;
}

struct PlacementScorer::Search {
  GpuSet free = 0, keep = 0;
  std::uint32_t count = 0;
  RingScope reach = RingScope::kInside;
  double bound = 0;
  bool found = false;
  GpuSetChoice best;
};

PlacementScorer::PlacementScorer(const topology::Machine& machine)
    : machine_(machine), routes_(machine) {
  for (std::size_t i = 0; i < machine.nics.size(); ++i) {
    if (machine.nics[i].up) nic_ends_.push_back(machine.nic_end(i));
  }
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu)
    outward_ports_.push_back(port(gpu, 0, RingScope::kOutward));
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    NicSet& near = near_nics_.emplace_back(0);
    for (const std::uint32_t nic : placement::nearest_nics(machine, gpu))
      near |= nic < 64 ? NicSet{1} << nic : 0;
  }
}

const RingPlan& PlacementScorer::rings(GpuSet gpus, RingScope reach) {
  auto [at, added] = plans_[static_cast<int>(reach)].try_emplace(gpus);
  if (!added) return at->second;
  const std::vector<std::uint32_t> ends = members_of(gpus);
  if (reach == RingScope::kInside) {
    at->second = plan_rings(routes_, ends, {});
  } else if (!nic_ends_.empty()) {
    at->second = plan_rings(routes_, ends, nic_ends_);
  }
  return at->second;
}

const RingPlan& PlacementScorer::rings_through(GpuSet gpus, NicSet nics) {
  auto [at, added] = through_.try_emplace({gpus, nics});
  if (!added) return at->second;
  std::vector<std::uint32_t> ends;
  for (const std::uint32_t nic : members_of(nics)) {
    if (nic < machine_.nics.size() && machine_.nics[nic].up) ends.push_back(machine_.nic_end(nic));
  }
  if (!ends.empty()) at->second = plan_rings(routes_, members_of(gpus), ends);
  return at->second;
}

double PlacementScorer::memory_gbytes(GpuSet gpus) const {
  std::vector<double> load(routes_.rows(), 0.0);
  for (const std::uint32_t gpu : members_of(gpus)) {
    const std::uint32_t numa = machine_.gpus[gpu].numa;
    if (numa == topology::kNoPart) continue;
    for (const Use& use : routes_.between(gpu, machine_.numa_end(numa)))
      load[use.row] += use.amount;
  }
  double out = 0;
  for (std::uint32_t row = 0; row < load.size(); ++row) {
    if (load[row] == 0) continue;
    const double each = routes_.capacity(row) / load[row];
    out = out == 0 ? each : std::min(out, each);
  }
  return out;
}

std::uint32_t PlacementScorer::numas(GpuSet gpus) const {
  std::vector<std::uint32_t> found;
  for (const std::uint32_t gpu : members_of(gpus)) found.push_back(machine_.gpus[gpu].numa);
  std::sort(found.begin(), found.end());
  return static_cast<std::uint32_t>(std::unique(found.begin(), found.end()) - found.begin());
}

std::uint32_t PlacementScorer::nearest_nics(GpuSet gpus) const {
  NicSet out = 0;
  for (const std::uint32_t gpu : members_of(gpus)) out |= near_nics_[gpu];
  return std::min(static_cast<std::uint32_t>(std::popcount(out)), count_of(gpus));
}

double PlacementScorer::nic_gbytes() const {
  double out = 0;
  for (std::size_t i = 0; i < machine_.nics.size(); ++i) {
    if (machine_.nics[i].up)
      out += routes_.capacity(static_cast<std::uint32_t>(machine_.links.size() + i));
  }
  return out;
}

// The GB/s of the links next to a GPU that lead to the other GPUs, or to the NICs.
double PlacementScorer::port(std::uint32_t gpu, GpuSet towards, RingScope reach) const {
  std::vector<std::uint32_t> first;
  const auto note = [&](std::uint32_t end) {
    if (const auto uses = routes_.between(gpu, end); !uses.empty())
      first.push_back(uses.front().row);
  };
  if (reach == RingScope::kOutward) std::for_each(nic_ends_.begin(), nic_ends_.end(), note);
  if (reach == RingScope::kInside) {
    for (const std::uint32_t other : members_of(towards & ~bit_of(gpu))) note(other);
  }
  std::sort(first.begin(), first.end());
  first.erase(std::unique(first.begin(), first.end()), first.end());
  double out = 0;
  for (const std::uint32_t row : first) out += routes_.capacity(row);
  return out;
}

std::vector<double> PlacementScorer::outward_bounds(GpuSet free) const {
  std::vector<double> ports;
  for (const std::uint32_t gpu : members_of(free)) ports.push_back(outward_ports_[gpu]);
  std::sort(ports.begin(), ports.end(), std::greater<>());
  const double wires = nic_gbytes();
  std::vector<double> out = {0};
  double sum = 0;
  for (const double each : ports) out.push_back(std::min(sum += each, wires));
  return out;
}

double PlacementScorer::bound(GpuSet free, std::uint32_t count, RingScope reach) const {
  if (reach == RingScope::kOutward) return outward_bounds(free)[count];
  if (count < 2) return HUGE_VAL;
  std::vector<double> ports;
  for (const std::uint32_t gpu : members_of(free)) ports.push_back(port(gpu, free, reach));
  std::sort(ports.begin(), ports.end(), std::greater<>());
  return ports[count - 1];
}

// False if `gpus` cannot reach `least` GB/s, since no ring carries more than the links next to a
// GPU.
bool PlacementScorer::reaches(GpuSet gpus, RingScope reach, double least) const {
  if (reach == RingScope::kOutward) return true;
  for (const std::uint32_t gpu : members_of(gpus)) {
    const double most = port(gpu, gpus, reach);
    if (most < least && !about_equal(most, least)) return false;
  }
  return true;
}

PlacementScore PlacementScorer::score(GpuSet gpus, GpuSet free, RingScope reach) {
  const GpuSet left = free & ~gpus;
  return {rings(gpus, reach).gbytes, reach == RingScope::kOutward ? nearest_nics(gpus) : 0,
          numas(gpus), count_of(left) > 1 ? rings(left, RingScope::kInside).gbytes : 0,
          memory_gbytes(gpus)};
}

void PlacementScorer::try_set(Search& search, GpuSet gpus) {
  const double least = search.best.score.gbytes;
  if (search.found && count_of(gpus) > 1 && !reaches(gpus, search.reach, least)) return;
  const double gbytes = rings(gpus, search.reach).gbytes;
  if (search.found && gbytes < least && !about_equal(gbytes, least)) return;
  const PlacementScore scored = score(gpus, search.free, search.reach);
  if (search.found && !scored.better_than(search.best.score)) return;
  search.found = true;
  search.best = {gpus, scored};
}

// For kOutward, a set that saturates the NICs and shares none unnecessarily is good enough: the
// GPUs left on a machine that takes part matter little.
bool PlacementScorer::fills_nics(const Search& search) const {
  return search.reach == RingScope::kOutward &&
         about_equal(search.best.score.gbytes, search.bound) &&
         search.best.score.nics == std::min(nearest_nics(search.free), search.count);
}

void PlacementScorer::try_all(Search& search) {
  const std::vector<std::uint32_t> open = members_of(search.free & ~search.keep);
  const std::uint32_t wanted = search.count - count_of(search.keep);
  if (wanted == 0) return try_set(search, search.keep);
  const GpuSet end = open.size() < kMostGpus ? bit_of(open.size()) : 0;
  for (GpuSet chosen = wanted < kMostGpus ? bit_of(wanted) - 1 : ~GpuSet{0};;) {
    try_set(search, search.keep | spread_over(chosen, open));
    if (fills_nics(search)) return;
    chosen = next_subset(chosen);
    if (chosen == 0 || (end != 0 && chosen >= end)) return;
  }
}

// Repeatedly adds the GPU with the most bandwidth to the chosen ones, near ones first; with
// `over_nics`, first GPUs that add a nearest NIC.
GpuSet PlacementScorer::grown_from(const Search& search, std::uint32_t seed, bool over_nics) const {
  GpuSet out = search.keep | bit_of(seed);
  while (count_of(out) < search.count) {
    std::uint32_t best = topology::kNoPart;
    std::tuple<std::uint32_t, double, double> most;
    for (const std::uint32_t gpu : members_of(search.free & ~out)) {
      double gbytes = 0, near = 0;
      for (const std::uint32_t other : members_of(out)) {
        gbytes += machine_.path(gpu, other).gbytes;
        near += machine_.gpus[gpu].numa == machine_.gpus[other].numa ? 1 : 0;
      }
      const std::tuple here(over_nics ? nearest_nics(out | bit_of(gpu)) : 0, gbytes, near);
      if (best == topology::kNoPart || here > most) most = here, best = gpu;
    }
    out |= bit_of(best);
  }
  return out;
}

void PlacementScorer::try_grown(Search& search) {
  const GpuSet seeds = count_of(search.keep) < search.count ? search.free & ~search.keep : 0;
  if (seeds == 0) try_set(search, search.keep);
  for (const std::uint32_t seed : members_of(seeds)) {
    for (const bool over_nics : {false, true}) {
      if (over_nics && search.reach == RingScope::kInside) continue;
      const GpuSet grown = grown_from(search, seed, over_nics);
      if (!search.found || grown != search.best.gpus) try_set(search, grown);
    }
  }
  std::size_t left = kMostTurns / search.count;  // exchanges left; scoring a large set takes longer
  for (bool better = true; better && !about_equal(search.best.score.gbytes, search.bound);) {
    better = false;
    const GpuSet before = search.best.gpus;
    for (const std::uint32_t out : members_of(before & ~search.keep)) {
      for (const std::uint32_t in : members_of(search.free & ~before)) {
        if (left-- == 0) return;
        try_set(search, (before & ~bit_of(out)) | bit_of(in));
      }
    }
    better = search.best.gpus != before;
  }
}

GpuSetChoice PlacementScorer::best(GpuSet free, std::uint32_t count, GpuSet keep, RingScope reach) {
  auto [at, added] = choices_[static_cast<int>(reach)].try_emplace({{free, keep}, count});
  if (!added) return at->second;
  Search search{free, keep, count, reach, bound(free, count, reach), false, {}};
  if (ways(count_of(free & ~keep), count - count_of(keep)) <= kMostSets) {
    try_all(search);
  } else {
    try_grown(search);
  }
  return at->second = search.best;
}

}  // namespace regroup::placement
