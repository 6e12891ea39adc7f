// Chooses the hosts of a gang: `sets` sets of `gpus` GPUs each, which start together.
//
// 1. Hosts with equal machines, free GPUs and capacities form a class. All hosts of a class are
//    alike, so bandwidths are computed per class.
// 2. Tried first: the single host with the best rings; then the hosts of one NVLink domain.
// 3. Then several hosts. A threshold is a bandwidth that some class offers; hosts below it are left
//    out. Thresholds are tried from the highest at which the gang fits downwards, and none below
//    the best prediction so far, since a ring is as fast as its slowest host.
// 4. At a threshold, the hosts of the smallest subtree of the network with enough capacity are
//    used, with as few sets on each as fit. If its links are the bottleneck, fewer hosts with more
//    sets each are tried, and hosts behind faster links.
// 5. The bandwidth of a class is first bounded from above, which is cheap, and computed exactly
//    only when a choice uses it. If the exact value is smaller, step 3 starts over at that
//    threshold. So the result depends on exact values alone.
// 6. Each candidate is predicted as a whole; the best prediction wins, by the rules of the packing.
#include "launcher/placement/gang.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <tuple>

#include "launcher/placement/rails.h"

namespace regroup::placement {
namespace {

constexpr std::uint32_t kUnlimitedSets = UINT32_MAX;
constexpr std::size_t kMostWidths = 8;  // link widths by which hosts are left out

bool at_least(double gbytes, double threshold) {
  return gbytes >= threshold || about_equal(gbytes, threshold);
}

struct HostClass {
  std::uint32_t machine = 0;
  GpuSet free = 0;
  std::uint32_t capacity = 0;         // number of sets that GPUs and slots allow
  std::vector<std::uint32_t> shares;  // indices into the allocation
  std::vector<double> gbytes = {};    // [sets]: GB/s of rings through the NICs, or an upper bound
  std::vector<bool> exact = {};       // [sets]: true if `gbytes` is no bound
};

// The number of sets of `request` that a host with `share` can take.
std::uint32_t capacity_of(const HostShare& share, const GangRequest& request) {
  std::uint32_t sets = count_of(share.free) / request.gpus;
  if (request.per_host != 0) sets = std::min(sets, request.per_host);
  if (request.ranks != 0 && share.slots != 0) sets = std::min(sets, share.slots / request.ranks);
  return sets;
}

// A host and the number of sets on it.
struct HostUse {
  std::uint32_t share = 0;  // index into the allocation
  std::uint32_t sets = 0;
};

// The classes of an allocation, and the bandwidth that each offers.
class HostClasses {
 public:
  HostClasses(PlacementScorers& scorers, const std::vector<HostShare>& allocation,
              const GangRequest& request)
      : scorers_(scorers), gpus_(request.gpus), class_of_(allocation.size(), topology::kNoPart) {
    using Key = std::tuple<std::uint32_t, GpuSet, std::uint32_t>;
    std::map<Key, std::uint32_t> numbers;
    for (std::uint32_t i = 0; i < allocation.size(); ++i) {
      const HostShare& share = allocation[i];
      const std::uint32_t machine = scorers.fabric().hosts[share.host].machine;
      const std::uint32_t capacity = capacity_of(share, request);
      if (capacity == 0) continue;
      const auto [number, added] =
          numbers.try_emplace({machine, share.free, capacity}, classes_.size());
      if (added) classes_.push_back({machine, share.free, capacity, {}});
      classes_[number->second].shares.push_back(i);
      class_of_[i] = number->second;
    }
  }

  [[nodiscard]] auto begin() const { return classes_.begin(); }
  [[nodiscard]] auto end() const { return classes_.end(); }

  [[nodiscard]] std::uint32_t largest_capacity() const {
    std::uint32_t largest = 0;
    for (const HostClass& each : classes_) largest = std::max(largest, each.capacity);
    return largest;
  }

  // Sets an upper bound for every bandwidth.
  void bound_all() {
    for (HostClass& each : classes_) {
      const std::vector<double> bounds =
          scorers_.of_machine(each.machine).outward_bounds(each.free);
      each.gbytes.assign(each.capacity + 1, 0.0);
      each.exact.assign(each.capacity + 1, false);
      for (std::uint32_t sets = 1; sets <= each.capacity; ++sets)
        each.gbytes[sets] = bounds[sets * gpus_];
    }
  }

  // Computes the bandwidths that `hosts` use. True if one is smaller than its bound.
  bool make_exact(const std::vector<HostUse>& hosts) {
    bool smaller = false;
    for (const HostUse& host : hosts) {
      HostClass& its_class = classes_[class_of_[host.share]];
      if (its_class.exact[host.sets]) continue;
      const double gbytes = scorers_.of_machine(its_class.machine)
                                .best(its_class.free, host.sets * gpus_, 0, RingScope::kOutward)
                                .score.gbytes;
      double& known = its_class.gbytes[host.sets];
      smaller |= gbytes < known && !about_equal(gbytes, known);
      known = gbytes;
      its_class.exact[host.sets] = true;
    }
    return smaller;
  }

  // The greatest number of sets, up to `most`, with which a host of the class offers `threshold`
  // GB/s.
  [[nodiscard]] static std::uint32_t sets_at(const HostClass& its_class, double threshold,
                                             std::uint32_t most) {
    for (std::uint32_t sets = std::min(its_class.capacity, most); sets > 0; --sets) {
      if (its_class.gbytes[sets] > 0 && at_least(its_class.gbytes[sets], threshold)) return sets;
    }
    return 0;
  }

  // The number of sets on all hosts that offer `threshold` GB/s, at most `per_host` on each.
  [[nodiscard]] std::uint64_t capacity_at(double threshold, std::uint32_t per_host) const {
    std::uint64_t sets = 0;
    for (const HostClass& each : classes_)
      sets += std::uint64_t{sets_at(each, threshold, per_host)} * each.shares.size();
    return sets;
  }

  // The next bandwidth below `below` at which `sets` sets fit on the hosts that offer it.
  [[nodiscard]] std::optional<double> next_threshold(double below, std::uint32_t sets) const {
    std::set<double, std::greater<>> thresholds;
    for (const HostClass& each : classes_) {
      for (const double gbytes : each.gbytes) {
        if (gbytes > 0 && gbytes < below && !about_equal(gbytes, below)) thresholds.insert(gbytes);
      }
    }
    for (const double threshold : thresholds) {
      if (capacity_at(threshold, kUnlimitedSets) >= sets) return threshold;
    }
    return std::nullopt;
  }

 private:
  PlacementScorers& scorers_;
  const std::uint32_t gpus_;             // per set
  std::vector<std::uint32_t> class_of_;  // [share]
  std::vector<HostClass> classes_;
};

// True if `node` is `top` or below it, and every link between has more than `wider_than` GB/s.
bool is_connected_below(const topology::Fabric& fabric, std::uint32_t node, std::uint32_t top,
                        double wider_than) {
  for (; node != topology::kNoPart && node != top; node = fabric.nodes[node].parent) {
    const double up = fabric.nodes[node].up_gbytes;
    if (up > 0 && up <= wider_than) return false;
  }
  return node == top;
}

class GangChooser {
 public:
  GangChooser(PlacementScorers& scorers, const std::vector<HostShare>& allocation,
              const GangRequest& request)
      : scorers_(scorers),
        fabric_(scorers.fabric()),
        allocation_(allocation),
        request_(request),
        classes_(scorers, allocation, request) {
    std::set<double> widths{0};
    for (const topology::FabricNode& node : fabric_.nodes) widths.insert(node.up_gbytes);
    uplinks_.assign(widths.begin(), widths.end());
    uplinks_.resize(std::min(uplinks_.size(), kMostWidths));
  }

  std::vector<HostPart> choose() {
    try_single_hosts();
    const bool packs =
        request_.packing == spec::Packing::kPack || request_.packing == spec::Packing::kAny;
    const bool enough = packs && !best_.empty();
    if (!enough && request_.keep == 0 && request_.sets > 1) {
      try_nvlink_domain();
      try_several_hosts();
    }
    return std::move(best_);
  }

 private:
  // A host that offers the current threshold.
  struct Candidate {
    HostUse use;
    std::uint32_t leaf = topology::kNoPart;  // the switch that it is connected to
    std::uint32_t free_gpus = 0;
  };

  // Of the hosts with the best score, the one with the fewest free GPUs.
  void try_single_hosts() {
    const HostClass* chosen = nullptr;
    GpuSetChoice choice;
    for (const HostClass& each : classes_) {
      if (each.capacity < request_.sets || (each.free & request_.keep) != request_.keep) continue;
      const GpuSetChoice gpus =
          scorers_.of_machine(each.machine)
              .best(each.free, request_.sets * request_.gpus, request_.keep, RingScope::kInside);
      if (gpus.score.gbytes <= 0) continue;
      if (chosen != nullptr && !is_better_host(each, gpus, *chosen, choice)) continue;
      chosen = &each;
      choice = gpus;
    }
    if (chosen == nullptr) return;
    best_ = {{allocation_[chosen->shares.front()].host, choice.gpus, chosen->free}};
    predicted_ = predict(scorers_, best_);
  }

  [[nodiscard]] bool is_better_host(const HostClass& host, const GpuSetChoice& gpus,
                                    const HostClass& than, const GpuSetChoice& than_gpus) const {
    const bool same_score = about_equal(gpus.score.gbytes, than_gpus.score.gbytes);
    if (same_score || request_.packing == spec::Packing::kAny)
      return count_of(host.free) < count_of(than.free);
    return gpus.score.gbytes > than_gpus.score.gbytes;
  }

  // Hosts whose GPUs are connected by NVLink: those of the smallest domain in which the gang fits,
  // on as few hosts as possible.
  void try_nvlink_domain() {
    std::map<std::uint32_t, std::vector<HostUse>> hosts_of;
    std::map<std::uint32_t, std::uint32_t> capacity_of_domain;
    for (const HostClass& each : classes_) {
      for (const std::uint32_t share : each.shares) {
        const std::uint32_t domain = fabric_.hosts[allocation_[share].host].nvlink;
        if (domain == topology::kNoPart) continue;
        hosts_of[domain].push_back({share, each.capacity});
        capacity_of_domain[domain] += each.capacity;
      }
    }
    std::optional<std::uint32_t> smallest;
    for (const auto& [domain, capacity] : capacity_of_domain) {
      if (capacity < request_.sets) continue;
      if (!smallest || capacity < capacity_of_domain[*smallest]) smallest = domain;
    }
    if (!smallest) return;
    std::vector<HostUse>& hosts = hosts_of[*smallest];
    std::ranges::stable_sort(hosts, std::greater<>(), &HostUse::sets);
    keep_if_better(first_sets(hosts), RingScope::kInside);
  }

  void try_several_hosts() {
    classes_.bound_all();
    if (request_.packing == spec::Packing::kBest) return try_thresholds();
    while (const auto most = most_per_host(0)) {  // any bandwidth will do
      if (try_threshold(0, *most)) return;
    }
  }

  // A threshold is repeated until it uses no bound: try_threshold() is false at most once for each
  // number of sets of each class.
  void try_thresholds() {
    for (double tried = HUGE_VAL;;) {
      const std::optional<double> threshold = classes_.next_threshold(tried, request_.sets);
      if (!threshold || (!best_.empty() && !at_least(*threshold, predicted_.gbytes))) return;
      const std::optional<std::uint32_t> most = most_per_host(*threshold);
      if (!most) return;
      if (try_threshold(*threshold, *most)) tried = *threshold;
    }
  }

  // Tries hosts with at least `threshold` GB/s and `most` sets on each. If the network between them
  // is slower, also tries fewer hosts with more sets (perhaps of one switch), and leaves out hosts
  // whose switch has the slowest links. False: a bound became exact, and nothing was decided.
  bool try_threshold(double threshold, std::uint32_t most) {
    for (std::uint32_t per_host = most; per_host <= classes_.largest_capacity(); ++per_host) {
      for (const double wider_than : uplinks_) {
        const std::vector<HostUse> hosts = nearest_hosts(threshold, per_host, wider_than);
        if (hosts.empty()) break;
        if (classes_.make_exact(hosts)) return false;
        keep_if_better(hosts, RingScope::kOutward);
        const bool network_suffices = at_least(predicted_.gbytes, threshold);
        if (request_.packing != spec::Packing::kBest || network_suffices) return true;
      }
    }
    return true;
  }

  // Spreads ranks so that few share a host's NICs, if that costs no bandwidth. Not with packing, or
  // to leave whole hosts to other jobs.
  [[nodiscard]] std::optional<std::uint32_t> most_per_host(double threshold) const {
    const std::uint32_t largest = classes_.largest_capacity();
    const bool spreads =
        request_.packing == spec::Packing::kBest || request_.packing == spec::Packing::kSpread;
    for (std::uint32_t most = spreads ? 1 : largest; most <= largest; ++most) {
      if (classes_.capacity_at(threshold, most) >= request_.sets) return most;
    }
    return {};
  }

  // Hosts of the smallest subtree of the network with enough capacity; hosts of one switch are
  // consecutive.
  [[nodiscard]] std::vector<HostUse> nearest_hosts(double threshold, std::uint32_t per_host,
                                                   double wider_than) const {
    std::vector<Candidate> candidates = candidates_at(threshold, per_host);
    const std::vector<std::uint64_t> capacity = capacity_below(candidates);
    const std::uint32_t top = smallest_subtree(capacity);
    if (top != topology::kNoPart) {
      std::erase_if(candidates, [&](const Candidate& each) {
        return !is_connected_below(fabric_, each.leaf, top, wider_than);
      });
    }
    sort_by_switch(capacity, &candidates);
    std::vector<HostUse> hosts;
    for (const Candidate& each : candidates) hosts.push_back(each.use);
    return first_sets(std::move(hosts));
  }

  [[nodiscard]] std::vector<Candidate> candidates_at(double threshold,
                                                     std::uint32_t per_host) const {
    std::vector<Candidate> candidates;
    for (const HostClass& each : classes_) {
      const std::uint32_t sets = HostClasses::sets_at(each, threshold, per_host);
      if (sets == 0) continue;
      for (const std::uint32_t share : each.shares) {
        const std::uint32_t leaf = fabric_.hosts[allocation_[share].host].leaf;
        candidates.push_back({{share, sets}, leaf, count_of(each.free)});
      }
    }
    return candidates;
  }

  // [node]: the number of sets on all candidates below it.
  [[nodiscard]] std::vector<std::uint64_t> capacity_below(
      const std::vector<Candidate>& candidates) const {
    std::vector<std::uint64_t> capacity(fabric_.nodes.size(), 0);
    for (const Candidate& each : candidates) {
      for (std::uint32_t node = each.leaf; node != topology::kNoPart;
           node = fabric_.nodes[node].parent)
        capacity[node] += each.use.sets;
    }
    return capacity;
  }

  // Of the nodes with enough capacity, one with the least. Of equal ones the last, which is the
  // lowest, because a node follows its parent.
  [[nodiscard]] std::uint32_t smallest_subtree(const std::vector<std::uint64_t>& capacity) const {
    std::uint32_t smallest = topology::kNoPart;
    for (std::uint32_t node = 0; node < capacity.size(); ++node) {
      if (capacity[node] < request_.sets) continue;
      if (smallest == topology::kNoPart || capacity[node] <= capacity[smallest]) smallest = node;
    }
    return smallest;
  }

  // Switches with much capacity come first, so that the gang uses few of them.
  void sort_by_switch(const std::vector<std::uint64_t>& capacity,
                      std::vector<Candidate>* candidates) const {
    const auto capacity_of_switch = [&](const Candidate& each) {
      return each.leaf == topology::kNoPart ? 0 : capacity[each.leaf];
    };
    const bool any = request_.packing == spec::Packing::kAny;
    std::ranges::stable_sort(*candidates, [&](const Candidate& a, const Candidate& b) {
      if (capacity_of_switch(a) != capacity_of_switch(b))
        return capacity_of_switch(a) > capacity_of_switch(b);
      if (a.leaf != b.leaf) return a.leaf < b.leaf;
      if (!any && a.use.sets != b.use.sets) return a.use.sets > b.use.sets;
      if (a.free_gpus != b.free_gpus) return a.free_gpus < b.free_gpus;
      return a.use.share < b.use.share;
    });
  }

  // Uses the hosts in order until the requested number of sets is reached; the last host gets the
  // remainder. Empty: there are too few.
  [[nodiscard]] std::vector<HostUse> first_sets(std::vector<HostUse> hosts) const {
    std::uint32_t left = request_.sets;
    std::size_t used = 0;
    for (; used < hosts.size() && left > 0; ++used) {
      hosts[used].sets = std::min(hosts[used].sets, left);
      left -= hosts[used].sets;
    }
    hosts.resize(left == 0 ? used : 0);
    return hosts;
  }

  // Makes `hosts` the choice if their prediction is better than that of the present one.
  void keep_if_better(const std::vector<HostUse>& hosts, RingScope scope) {
    if (hosts.empty()) return;
    std::vector<HostPart> parts;
    for (const HostUse& host : hosts) {
      const HostShare& share = allocation_[host.share];
      PlacementScorer& scorer = scorers_.of_host(share.host);
      parts.push_back({share.host,
                       scorer.best(share.free, host.sets * request_.gpus, 0, scope).gpus,
                       share.free});
    }
    if (scope == RingScope::kOutward) keep_to_rails(scorers_, parts);
    const Prediction predicted = predict(scorers_, parts);
    if (predicted.gbytes <= 0 || (!best_.empty() && !is_better(predicted))) return;
    best_ = std::move(parts);
    predicted_ = predicted;
  }

  [[nodiscard]] bool is_better(const Prediction& other) const {
    if (request_.packing == spec::Packing::kSpread && other.hosts != predicted_.hosts)
      return other.hosts > predicted_.hosts;
    if (!about_equal(other.gbytes, predicted_.gbytes)) return other.gbytes > predicted_.gbytes;
    if (!about_equal(other.outward, predicted_.outward)) return other.outward > predicted_.outward;
    return other.hosts < predicted_.hosts;
  }

  PlacementScorers& scorers_;
  const topology::Fabric& fabric_;
  const std::vector<HostShare>& allocation_;
  const GangRequest& request_;
  HostClasses classes_;
  std::vector<double> uplinks_;  // 0, then the widths of links between switches, ascending
  std::vector<HostPart> best_;   // the choice so far
  Prediction predicted_;         // of best_
};

}  // namespace

std::vector<HostPart> choose_hosts(PlacementScorers& scorers,
                                   const std::vector<HostShare>& allocation,
                                   const GangRequest& request) {
  return GangChooser(scorers, allocation, request).choose();
}

}  // namespace regroup::placement
