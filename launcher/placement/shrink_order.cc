// The order in which an elastic job releases sets of GPUs. For few sets, the order in which the
// remaining sets are always close to the fastest choice of their number; for more, greedily the set
// whose loss leaves the fastest rings. Among equals, a set of the host with the fewest sets, so
// that whole hosts become free.
#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "launcher/placement/device_ranks.h"

namespace regroup::placement {
namespace {

constexpr std::uint32_t kMostOrdered = 8;  // up to this number of sets, all orders are tried
constexpr std::uint32_t kMostTried = 64;   // above it, releases whole hosts, the smallest first

// Host -> its sets and their GPUs.
using Left = std::map<std::uint32_t, std::map<std::uint32_t, GpuSet>>;

std::vector<HostPart> parts_of(const Left& left, std::uint32_t but_host, std::uint32_t but_set) {
  std::vector<HostPart> out;
  for (const auto& [host, sets] : left) {
    HostPart part{host, 0, 0};
    for (const auto& [set, gpus] : sets) {
      if (host != but_host || set != but_set) part.gpus |= gpus;
    }
    part.free = part.gpus;
    if (part.gpus != 0) out.push_back(part);
  }
  return out;
}

std::pair<std::uint32_t, std::uint32_t> last_of_smallest(const Left& left) {
  const auto smallest =
      std::min_element(left.begin(), left.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second.size(), ~a.first) < std::pair(b.second.size(), ~b.first);
      });
  return {smallest->first, smallest->second.rbegin()->first};
}

std::pair<std::uint32_t, std::uint32_t> cheapest(PlacementScorers& scorers, const Left& left) {
  std::pair<std::uint32_t, std::uint32_t> out;
  Prediction best;
  std::size_t fewest = SIZE_MAX;
  for (const auto& [host, sets] : left) {
    for (const auto& [set, gpus] : sets) {
      const Prediction here = predict(scorers, parts_of(left, host, set));
      const bool same =
          about_equal(here.gbytes, best.gbytes) && about_equal(here.outward, best.outward);
      const bool better = !about_equal(here.gbytes, best.gbytes) ? here.gbytes > best.gbytes
                                                                 : here.outward > best.outward;
      if (fewest != SIZE_MAX && !(same ? sets.size() <= fewest : better)) continue;
      best = here;
      fewest = sets.size();
      out = {host, set};
    }
  }
  return out;
}

// Dynamic programming over groups of sets, from the smallest: the set that each group releases
// first.
class Orders {
 public:
  Orders(PlacementScorers& scorers, const Left& left, std::uint32_t least)
      : scorers_(scorers), least_(least) {
    for (const auto& [host, sets] : left) {
      for (const auto& [set, gpus] : sets) sets_.push_back({host, set, gpus});
    }
    known_.resize(std::size_t{1} << sets_.size());
    best_of_size_.resize(sets_.size() + 1);
    for (std::uint32_t group = 1; group < known_.size(); ++group) {
      known_[group].speed = speed(group);
      double& best = best_of_size_[size_of(group)];
      best = std::max(best, known_[group].speed);
    }
  }

  [[nodiscard]] std::vector<std::uint32_t> best() {
    std::vector<std::uint32_t> out;
    for (std::uint32_t group = (1U << sets_.size()) - 1; size_of(group) > least_;) {
      const std::uint32_t first = value(group).first;
      out.push_back(sets_[first].number);
      group &= ~(1U << first);
    }
    return out;
  }

 private:
  struct Set {
    std::uint32_t host = 0, number = 0;
    GpuSet gpus = 0;
  };
  struct Value {
    double speed = 0;
    // Over all groups from this one on, the speed relative to the best group of the same size: the
    // minimum, and the sum.
    double least = -1;
    double sum = 0;
    std::uint32_t first = 0;
  };
  static std::uint32_t size_of(std::uint32_t group) {
    return static_cast<std::uint32_t>(std::popcount(group));
  }

  [[nodiscard]] double speed(std::uint32_t group) {
    constexpr double kMost = 1e6,
                     // A single rank has infinite bandwidth; NICs decide between equals.
        kOutward = 1e-6;
    std::map<std::uint32_t, HostPart> parts;
    for (std::uint32_t i = 0; i < sets_.size(); ++i) {
      if ((group >> i & 1) == 0) continue;
      HostPart& part = parts[sets_[i].host];
      part.host = sets_[i].host;
      part.gpus = part.free = part.gpus | sets_[i].gpus;
    }
    std::vector<HostPart> list;
    for (const auto& [host, part] : parts) list.push_back(part);
    const Prediction here = predict(scorers_, list);
    return std::min(here.gbytes, kMost) + kOutward * std::min(here.outward, kMost);
  }

  [[nodiscard]] std::uint32_t on_host(std::uint32_t group, std::uint32_t host) const {
    std::uint32_t out = 0;
    for (std::uint32_t i = 0; i < sets_.size(); ++i)
      out += (group >> i & 1) != 0 && sets_[i].host == host;
    return out;
  }

  const Value& value(std::uint32_t group) {
    Value& out = known_[group];
    if (out.least >= 0) return out;
    double least = -1, sum = 0;
    std::uint32_t fewest = 0;
    for (std::uint32_t i = 0; size_of(group) > least_ && i < sets_.size(); ++i) {
      if ((group >> i & 1) == 0) continue;
      const Value& rest = value(group & ~(1U << i));
      const std::uint32_t there = on_host(group, sets_[i].host);
      const bool as_good = least >= 0 && about_equal(rest.least, least);
      const bool same = as_good && about_equal(rest.sum, sum);
      const bool better = same ? there <= fewest : as_good ? rest.sum > sum : rest.least > least;
      if (!better) continue;
      least = rest.least, sum = rest.sum, out.first = i;
      fewest = there;
    }
    const double part = out.speed / std::max(best_of_size_[size_of(group)], 1e-9);
    out.least = least < 0 ? part : std::min(least, part);
    out.sum = sum + part;
    return out;
  }

  PlacementScorers& scorers_;
  const std::uint32_t least_;
  std::vector<Set> sets_;
  std::vector<Value> known_;  // indexed by group: one bit per entry of sets_
  std::vector<double> best_of_size_;
};

}  // namespace

std::vector<std::uint32_t> shrink_order(PlacementScorers& scorers,
                                        const std::vector<DeviceSlot>& ranks, std::uint32_t sets,
                                        std::uint32_t least) {
  Left left;
  for (const DeviceSlot& slot : ranks) {
    for (const std::uint32_t gpu : slot.gpus) left[slot.host][slot.set] |= bit_of(gpu);
  }
  if (sets <= kMostOrdered && sets > least) return Orders(scorers, left, least).best();
  std::vector<std::uint32_t> out;
  for (; sets > least; --sets) {
    const auto [host, set] = sets > kMostTried ? last_of_smallest(left) : cheapest(scorers, left);
    out.push_back(set);
    left[host].erase(set);
    if (left[host].empty()) left.erase(host);
  }
  return out;
}

}  // namespace regroup::placement
