// Hosts with equal machines and equal free GPUs form a class. The bandwidth of a class for a number
// of GPUs is first bounded from above, and computed exactly only for classes that a choice uses;
// the choice is repeated until it uses no bound.
#include "launcher/placement/gang.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "launcher/placement/rails.h"

namespace regroup::placement {
namespace {

struct HostClass {
  std::uint32_t machine = 0;
  GpuSet free = 0;
  std::uint32_t room = 0;             // number of sets that GPUs and slots allow
  std::vector<std::uint32_t> shares;  // indices into the allocation
  std::vector<double> gbytes;         // [sets]: GB/s of rings through the NICs, or an upper bound
  std::vector<bool> known;            // [sets]: true if `gbytes` is exact
};

using Classes = std::vector<HostClass>;

// `class_of`: the class of each share.
Classes classes_of(PlacementScorers& scorers, const std::vector<HostShare>& allocation,
                   const GangRequest& request, std::vector<std::uint32_t>& class_of) {
  class_of.assign(allocation.size(), topology::kNoPart);
  std::map<std::tuple<std::uint32_t, GpuSet, std::uint32_t>, std::uint32_t> numbers;
  Classes out;
  for (std::uint32_t i = 0; i < allocation.size(); ++i) {
    const HostShare& share = allocation[i];
    const std::uint32_t machine = scorers.fabric().hosts[share.host].machine;
    std::uint32_t room = count_of(share.free) / request.gpus;
    if (request.per_host != 0) room = std::min(room, request.per_host);
    if (request.ranks != 0 && share.slots != 0) room = std::min(room, share.slots / request.ranks);
    if (room == 0) continue;
    const auto [at, added] = numbers.try_emplace({machine, share.free, room}, out.size());
    if (added) out.push_back({machine, share.free, room, {}, {}, {}});
    out[at->second].shares.push_back(i);
    class_of[i] = at->second;
  }
  return out;
}

class Chooser {
 public:
  Chooser(PlacementScorers& scorers, const std::vector<HostShare>& allocation,
          const GangRequest& request)
      : scorers_(scorers),
        fabric_(scorers.fabric()),
        allocation_(allocation),
        request_(request),
        classes_(classes_of(scorers, allocation, request, class_of_)) {
    constexpr std::size_t kMostWidths = 8;
    std::set<double> widths{0};
    for (const topology::FabricNode& node : fabric_.nodes) widths.insert(node.up_gbytes);
    uplinks_.assign(widths.begin(), widths.end());
    uplinks_.resize(std::min(uplinks_.size(), kMostWidths));
  }

  std::vector<HostPart> choose() {
    one_host();
    const bool enough = !best_.empty() && (request_.packing == spec::Packing::kPack ||
                                           request_.packing == spec::Packing::kAny);
    if (!enough && request_.keep == 0 && request_.sets > 1) {
      one_domain();
      several_hosts();
    }
    return std::move(best_);
  }

 private:
  struct Taken {
    std::uint32_t share = 0, sets = 0;
  };

  // The host with the fewest free GPUs among those with the best score.
  void one_host() {
    const HostClass* chosen = nullptr;
    GpuSetChoice choice;
    for (const HostClass& one : classes_) {
      if (one.room < request_.sets || (one.free & request_.keep) != request_.keep) continue;
      const GpuSetChoice here =
          scorers_.of_machine(one.machine)
              .best(one.free, request_.sets * request_.gpus, request_.keep, RingScope::kInside);
      if (here.score.gbytes <= 0) continue;
      const bool same = chosen != nullptr && about_equal(here.score.gbytes, choice.score.gbytes);
      const bool any = chosen != nullptr && request_.packing == spec::Packing::kAny;
      if (chosen == nullptr || (same || any ? count_of(one.free) < count_of(chosen->free)
                                            : here.score.gbytes > choice.score.gbytes)) {
        chosen = &one;
        choice = here;
      }
    }
    if (chosen == nullptr) return;
    best_ = {{allocation_[chosen->shares.front()].host, choice.gpus, chosen->free}};
    score_ = predict(scorers_, best_);
  }

  // Chooses hosts whose GPUs are connected by NVLink.
  void one_domain() {
    std::map<std::uint32_t, std::vector<Taken>> domains;
    std::map<std::uint32_t, std::uint32_t> room;
    for (const HostClass& one : classes_) {
      for (const std::uint32_t share : one.shares) {
        const std::uint32_t domain = fabric_.hosts[allocation_[share].host].nvlink;
        if (domain == topology::kNoPart) continue;
        domains[domain].push_back({share, one.room});
        room[domain] += one.room;
      }
    }
    const auto by_room = [](const auto& a, const auto& b) { return a.second < b.second; };
    std::vector<std::pair<std::uint32_t, std::uint32_t>> order(room.begin(), room.end());
    std::stable_sort(order.begin(), order.end(), by_room);
    for (const auto& [domain, sets] : order) {
      if (sets < request_.sets) continue;
      std::vector<Taken>& hosts = domains[domain];
      std::stable_sort(hosts.begin(), hosts.end(),
                       [](const Taken& a, const Taken& b) { return a.sets > b.sets; });
      return offer(cut(hosts), RingScope::kInside);
    }
  }

  // Tries bandwidths that hosts offer, from the highest downwards, until no lower one can be
  // better.
  void several_hosts() {
    bound_all();
    const bool indifferent = request_.packing != spec::Packing::kBest;
    for (double least = indifferent ? 0 : HUGE_VAL;;) {
      const std::optional<double> next = indifferent ? 0 : next_threshold(least);
      if (!next || (!best_.empty() && !indifferent && *next < score_.gbytes &&
                    !about_equal(*next, score_.gbytes)))
        return;
      const std::optional<std::uint32_t> most = most_per_host(*next);
      if (!most) return;
      if (!offer_from(*next, *most)) continue;  // a bound was replaced by its exact value: repeat
      if (indifferent) return;
      least = *next;
    }
  }

  // Offers hosts with at least `least` GB/s and `most` sets on each. If the network between them is
  // slower, also offers fewer hosts with more sets (perhaps of one switch), and without hosts whose
  // switch has the slowest links. False: a bound became exact, and nothing was offered.
  bool offer_from(double least, std::uint32_t most) {
    const auto wide = [&] { return score_.gbytes > least || about_equal(score_.gbytes, least); };
    for (std::uint32_t each = most; each <= largest_room(); ++each) {
      for (const double wider_than : uplinks_) {
        std::vector<Taken> taken = take(least, each, wider_than);
        if (taken.empty()) break;
        if (learn(taken)) return false;
        offer(taken, RingScope::kOutward);
        if (request_.packing != spec::Packing::kBest || wide()) return true;
      }
    }
    return true;
  }

  void bound_all() {
    for (HostClass& one : classes_) {
      const std::vector<double> bounds = scorers_.of_machine(one.machine).outward_bounds(one.free);
      one.gbytes.assign(one.room + 1, 0.0);
      one.known.assign(one.room + 1, false);
      for (std::uint32_t sets = 1; sets <= one.room; ++sets)
        one.gbytes[sets] = bounds[sets * request_.gpus];
    }
  }

  // The next lower bandwidth at which the job fits on hosts that offer it.
  [[nodiscard]] std::optional<double> next_threshold(double below) const {
    std::vector<double> values;
    for (const HostClass& one : classes_) {
      for (const double gbytes : one.gbytes) {
        if (gbytes > 0 && gbytes < below && !about_equal(gbytes, below)) values.push_back(gbytes);
      }
    }
    std::sort(values.begin(), values.end(), std::greater<>());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    const auto at = std::find_if(values.begin(), values.end(), [this](double least) {
      return room(least, UINT32_MAX) >= request_.sets;
    });
    return at == values.end() ? std::nullopt : std::optional(*at);
  }

  // The greatest number of sets, up to `most`, with which a host of the class offers `least` GB/s.
  [[nodiscard]] static std::uint32_t offered(const HostClass& one, double least,
                                             std::uint32_t most) {
    for (std::uint32_t sets = std::min(one.room, most); sets > 0; --sets) {
      if (one.gbytes[sets] > 0 &&
          (one.gbytes[sets] >= least || about_equal(one.gbytes[sets], least)))
        return sets;
    }
    return 0;
  }

  [[nodiscard]] std::uint64_t room(double least, std::uint32_t most) const {
    std::uint64_t out = 0;
    for (const HostClass& one : classes_)
      out += std::uint64_t{offered(one, least, most)} * one.shares.size();
    return out;
  }

  [[nodiscard]] std::uint32_t largest_room() const {
    std::uint32_t out = 0;
    for (const HostClass& one : classes_) out = std::max(out, one.room);
    return out;
  }

  // Spreads ranks so that few share a host's NICs, if that costs no bandwidth. Not with packing, or
  // to leave whole hosts to other jobs.
  [[nodiscard]] std::optional<std::uint32_t> most_per_host(double least) const {
    const std::uint32_t largest = largest_room();
    const bool few =
        request_.packing == spec::Packing::kBest || request_.packing == spec::Packing::kSpread;
    for (std::uint32_t most = few ? 1 : largest; most <= largest; ++most) {
      if (room(least, most) >= request_.sets) return most;
    }
    return {};
  }

  // Hosts of the smallest part of the network with enough room; hosts of one switch are
  // consecutive.
  [[nodiscard]] std::vector<Taken> take(double least, std::uint32_t most, double wider_than) const {
    struct Offer {
      Taken taken;
      std::uint32_t leaf = topology::kNoPart, free = 0;
    };
    std::vector<Offer> offers;
    std::vector<std::uint64_t> below(fabric_.nodes.size(), 0);
    for (const HostClass& one : classes_) {
      const std::uint32_t sets = offered(one, least, most);
      if (sets == 0) continue;
      for (const std::uint32_t share : one.shares) {
        const std::uint32_t leaf = fabric_.hosts[allocation_[share].host].leaf;
        offers.push_back({{share, sets}, leaf, count_of(one.free)});
        for (std::uint32_t node = leaf; node != topology::kNoPart;
             node = fabric_.nodes[node].parent)
          below[node] += sets;
      }
    }
    const std::uint32_t top = smallest_part(below);
    if (top != topology::kNoPart) {
      std::erase_if(offers,
                    [&](const Offer& offer) { return !lies_under(offer.leaf, top, wider_than); });
    }
    const auto room_of = [&](const Offer& offer) {
      return offer.leaf == topology::kNoPart ? 0 : below[offer.leaf];
    };
    const bool any = request_.packing == spec::Packing::kAny;
    std::stable_sort(offers.begin(), offers.end(), [&](const Offer& a, const Offer& b) {
      if (room_of(a) != room_of(b)) return room_of(a) > room_of(b);
      if (a.leaf != b.leaf) return a.leaf < b.leaf;
      if (!any && a.taken.sets != b.taken.sets) return a.taken.sets > b.taken.sets;
      if (a.free != b.free) return a.free < b.free;
      return a.taken.share < b.taken.share;
    });
    std::vector<Taken> out;
    for (const Offer& offer : offers) out.push_back(offer.taken);
    return cut(std::move(out));
  }

  [[nodiscard]] std::uint32_t smallest_part(const std::vector<std::uint64_t>& below) const {
    std::uint32_t out = topology::kNoPart;
    for (std::uint32_t i = 0; i < below.size(); ++i) {
      if (below[i] >= request_.sets && (out == topology::kNoPart || below[i] <= below[out]))
        out = i;
    }
    return out;
  }

  // True if `node` is `top` or below it, and every link between has more than `wider_than` GB/s.
  [[nodiscard]] bool lies_under(std::uint32_t node, std::uint32_t top, double wider_than) const {
    for (; node != topology::kNoPart && node != top; node = fabric_.nodes[node].parent) {
      const double up = fabric_.nodes[node].up_gbytes;
      if (up > 0 && up <= wider_than) return false;
    }
    return node == top;
  }

  // Takes the requested number of sets; the last host gets the remainder.
  [[nodiscard]] std::vector<Taken> cut(std::vector<Taken> hosts) const {
    std::uint32_t left = request_.sets;
    std::size_t used = 0;
    for (; used < hosts.size() && left > 0; ++used) {
      hosts[used].sets = std::min(hosts[used].sets, left);
      left -= hosts[used].sets;
    }
    hosts.resize(left == 0 ? used : 0);
    return hosts;
  }

  // True if a bound was replaced by a smaller, exact value.
  bool learn(const std::vector<Taken>& taken) {
    bool less = false;
    for (const Taken& one : taken) {
      HostClass& of = classes_[class_of_[one.share]];
      if (of.known[one.sets]) continue;
      const double gbytes = scorers_.of_machine(of.machine)
                                .best(of.free, one.sets * request_.gpus, 0, RingScope::kOutward)
                                .score.gbytes;
      of.known[one.sets] = true;
      less |= gbytes < of.gbytes[one.sets] && !about_equal(gbytes, of.gbytes[one.sets]);
      of.gbytes[one.sets] = gbytes;
    }
    return less;
  }

  // Keeps the offer if it is better than the present one.
  void offer(const std::vector<Taken>& taken, RingScope reach) {
    if (taken.empty()) return;
    std::vector<HostPart> parts;
    for (const Taken& one : taken) {
      const HostShare& share = allocation_[one.share];
      PlacementScorer& scorer = scorers_.of_host(share.host);
      parts.push_back({share.host, scorer.best(share.free, one.sets * request_.gpus, 0, reach).gpus,
                       share.free});
    }
    if (reach == RingScope::kOutward) keep_to_rails(scorers_, parts);
    const Prediction predicted = predict(scorers_, parts);
    if (predicted.gbytes <= 0 || (!best_.empty() && !better(predicted))) return;
    best_ = std::move(parts);
    score_ = predicted;
  }

  [[nodiscard]] bool better(const Prediction& other) const {
    if (request_.packing == spec::Packing::kSpread && other.hosts != score_.hosts)
      return other.hosts > score_.hosts;
    if (!about_equal(other.gbytes, score_.gbytes)) return other.gbytes > score_.gbytes;
    if (!about_equal(other.outward, score_.outward)) return other.outward > score_.outward;
    return other.hosts < score_.hosts;
  }

  PlacementScorers& scorers_;
  const topology::Fabric& fabric_;
  const std::vector<HostShare>& allocation_;
  const GangRequest& request_;
  std::vector<std::uint32_t> class_of_;
  Classes classes_;
  std::vector<double> uplinks_;  // 0, then the widths of links between switches, ascending
  std::vector<HostPart> best_;
  Prediction score_;
};

}  // namespace

std::vector<HostPart> choose_hosts(PlacementScorers& scorers,
                                   const std::vector<HostShare>& allocation,
                                   const GangRequest& request) {
  return Chooser(scorers, allocation, request).choose();
}

}  // namespace regroup::placement
