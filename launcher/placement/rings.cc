// Rings are the columns of a packing LP (packing_lp.h): a ring uses links, and its bandwidth is the
// variable. By the prices of the links, the cheapest tour is the ring most worth adding.
#include "launcher/placement/rings.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

namespace regroup::placement {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostExact = 9;  // most stations for which the cheapest tour is found exactly
constexpr std::size_t kMostRounds = 200;
constexpr double kWorthIt = 1 - 1e-7;

using Tour = std::vector<std::uint32_t>;  // indices into Costs

// The cost of a hop between each two stations.
struct Costs {
  std::size_t size = 0;
  std::vector<double> hop;

  [[nodiscard]] double at(std::size_t a, std::size_t b) const { return hop[a * size + b]; }
  [[nodiscard]] double of(const Tour& tour) const {
    double out = at(tour.back(), tour.front());
    for (std::size_t i = 0; i + 1 < tour.size(); ++i) out += at(tour[i], tour[i + 1]);
    return out;
  }
};

// A lower bound of any tour: each station has two hops, and each hop belongs to two stations.
double least_tour(const Costs& costs) {
  double out = 0;
  for (std::size_t a = 0; a < costs.size; ++a) {
    double first = kNever, second = kNever;
    for (std::size_t b = 0; b < costs.size; ++b) {
      if (b == a) continue;
      const double hop = costs.at(a, b);
      second = std::min(second, std::max(first, hop));
      first = std::min(first, hop);
    }
    out += (first + (costs.size == 2 ? first : second)) / 2;
  }
  return out;
}

// Held and Karp: best[set][last] is the cheapest path from station 0 through all of `set` to
// `last`.
Tour cheapest_tour(const Costs& costs) {
  const std::size_t others = costs.size - 1, sets = std::size_t{1} << others;
  std::vector<double> best(sets * others, kNever);
  const auto at = [&](std::size_t set, std::size_t last) -> double& {
    return best[set * others + last];
  };
  for (std::size_t last = 0; last < others; ++last)
    at(std::size_t{1} << last, last) = costs.at(0, last + 1);
  for (std::size_t set = 1; set < sets; ++set) {
    for (std::size_t last = 0; last < others; ++last) {
      const double here = at(set, last);
      if (here == kNever) continue;
      for (std::size_t left = ~set & (sets - 1); left != 0; left &= left - 1) {
        const auto next = static_cast<std::size_t>(std::countr_zero(left));
        double& there = at(set | std::size_t{1} << next, next);
        there = std::min(there, here + costs.at(last + 1, next + 1));
      }
    }
  }
  Tour out(costs.size, 0);
  std::size_t set = sets - 1, after = 0;
  for (std::size_t i = costs.size - 1; i > 0; --i) {
    std::size_t last = others;
    for (std::size_t one = 0; one < others; ++one) {
      if ((set >> one & 1) == 0) continue;
      if (last == others ||
          at(set, one) + costs.at(one + 1, after) < at(set, last) + costs.at(last + 1, after))
        last = one;
    }
    out[i] = static_cast<std::uint32_t>(after = last + 1);
    set &= ~(std::size_t{1} << last);
  }
  return out;
}

// 2-opt: reverses parts of the tour while that makes it cheaper.
void untangle(const Costs& costs, Tour& tour) {
  const std::size_t size = tour.size();
  for (bool better = true; better;) {
    better = false;
    for (std::size_t i = 0; i + 2 < size; ++i) {
      for (std::size_t j = i + 2; j < size; ++j) {
        const std::uint32_t a = tour[i], b = tour[i + 1], c = tour[j], d = tour[(j + 1) % size];
        if (a == d || costs.at(a, c) + costs.at(b, d) >= costs.at(a, b) + costs.at(c, d) - 1e-12)
          continue;
        std::reverse(tour.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                     tour.begin() + static_cast<std::ptrdiff_t>(j) + 1);
        better = true;
      }
    }
  }
}

// The nearest-neighbour tours from each station; returns the cheapest, improved by 2-opt.
Tour good_tour(const Costs& costs) {
  Tour best;
  for (std::uint32_t start = 0; start < costs.size; ++start) {
    Tour tour(costs.size);
    std::iota(tour.begin(), tour.end(), 0U);
    std::swap(tour[0], tour[start]);
    for (std::size_t i = 1; i < tour.size(); ++i) {
      const auto from = tour.begin() + static_cast<std::ptrdiff_t>(i);
      std::iter_swap(from,
                     std::min_element(from, tour.end(), [&](std::uint32_t a, std::uint32_t b) {
                       return costs.at(tour[i - 1], a) < costs.at(tour[i - 1], b);
                     }));
    }
    if (best.empty() || costs.of(tour) < costs.of(best)) best = std::move(tour);
  }
  untangle(costs, best);
  return best;
}

class Planner {
 public:
  Planner(const Routes& routes, std::span<const std::uint32_t> gpus,
          std::span<const std::uint32_t> nics)
      : routes_(routes),
        gpus_(gpus),
        nics_(nics),
        local_(routes.rows(), topology::kNoPart),
        lp_(capacities()) {}

  RingPlan plan() {
    prices_.clear();
    for (const std::uint32_t row : rows_) prices_.push_back(1 / routes_.capacity(row));
    const double most = bound();
    // A good tour suffices while some are worth adding; only the cheapest proves that none is.
    bool exact = false;
    for (std::size_t round = 0; round < kMostRounds; ++round) {
      if (!add_rings(exact)) {
        if (exact || stations() > kMostExact) break;
        exact = true;
        continue;
      }
      if (lp_.value() >= most * kWorthIt) break;
      prices_ = lp_.prices();
    }
    return result();
  }

 private:
  // Numbers the rows that some hop uses.
  std::vector<double> capacities() {
    std::vector<double> out;
    const auto note = [&](std::uint32_t from, std::uint32_t to) {
      for (const Use& use : routes_.between(from, to)) {
        if (local_[use.row] != topology::kNoPart) continue;
        local_[use.row] = static_cast<std::uint32_t>(rows_.size());
        rows_.push_back(use.row);
        out.push_back(routes_.capacity(use.row));
      }
    };
    for (const std::uint32_t from : gpus_) {
      for (const std::uint32_t to : gpus_) note(from, to);
      for (const std::uint32_t to : nics_) note(from, to);
    }
    return out;
  }

  // An upper bound: the capacity of the links next to any GPU, or of all NIC ports, since each ring
  // passes every GPU and a NIC.
  [[nodiscard]] double bound() const {
    double out = kNever;
    for (const std::uint32_t gpu : gpus_) {
      std::vector<std::uint32_t> next;
      for (const auto& others : {gpus_, nics_}) {
        for (const std::uint32_t to : others) {
          const std::span<const Use> uses = routes_.between(gpu, to);
          if (!uses.empty()) next.push_back(uses.front().row);
        }
      }
      out = std::min(out, carried(next));
    }
    std::vector<std::uint32_t> wires;
    for (const std::uint32_t nic : nics_) {
      for (const std::uint32_t gpu : gpus_) {
        const std::span<const Use> uses = routes_.between(gpu, nic);
        if (!uses.empty()) wires.push_back(uses.back().row);
      }
    }
    return wires.empty() ? out : std::min(out, carried(wires));
  }

  [[nodiscard]] double carried(std::vector<std::uint32_t> rows) const {
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    double out = 0;
    for (const std::uint32_t row : rows) out += routes_.capacity(row);
    return out;
  }

  // Half of what a ring carries goes around it in each direction.
  [[nodiscard]] double cost(std::uint32_t from, std::uint32_t to) const {
    const std::span<const Use> uses = routes_.between(from, to);
    if (uses.empty()) return kNever;
    double out = 0;
    for (const Use& use : uses) out += prices_[local_[use.row]] * use.amount / 2;
    return out;
  }

  [[nodiscard]] std::size_t stations() const { return gpus_.size() + (nics_.empty() ? 0 : 1); }

  // Adds one ring through each NIC, if it is worth adding or there is none yet. True if any was
  // added.
  bool add_rings(bool exact) {
    const bool first = tours_.empty();
    bool added = false;
    for (std::size_t i = 0; i < std::max<std::size_t>(1, nics_.size()); ++i) {
      std::vector<std::uint32_t> ends;
      if (!nics_.empty()) ends.push_back(nics_[i]);
      ends.insert(ends.end(), gpus_.begin(), gpus_.end());
      Costs costs{ends.size(), std::vector<double>(ends.size() * ends.size())};
      for (std::size_t a = 0; a < ends.size(); ++a) {
        for (std::size_t b = 0; b < a; ++b)
          costs.hop[a * ends.size() + b] = costs.hop[b * ends.size() + a] = cost(ends[a], ends[b]);
      }
      if (exact && !first && least_tour(costs) >= kWorthIt) continue;
      Tour tour = exact ? cheapest_tour(costs) : good_tour(costs);
      const double price = costs.of(tour);
      if (price == kNever || (!first && price >= kWorthIt)) continue;
      for (std::uint32_t& station : tour) station = ends[station];
      add(std::move(tour));
      added = true;
    }
    return added;
  }

  void add(std::vector<std::uint32_t> ends) {
    std::vector<Use> uses;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      for (const Use& use : routes_.between(ends[i], ends[(i + 1) % ends.size()])) {
        const std::uint32_t row = local_[use.row];
        const auto same =
            std::find_if(uses.begin(), uses.end(), [row](const Use& u) { return u.row == row; });
        if (same == uses.end()) {
          uses.push_back({row, use.amount / 2});
        } else {
          same->amount += use.amount / 2;
        }
      }
    }
    lp_.add(uses);
    tours_.push_back(std::move(ends));
  }

  RingPlan result() {
    RingPlan out;
    const std::vector<double> amounts = lp_.amounts();
    for (std::size_t i = 0; i < tours_.size(); ++i) {
      std::vector<std::uint32_t>& tour = tours_[i];
      if (tour.size() > 2 && tour[1] > tour.back()) std::reverse(tour.begin() + 1, tour.end());
      if (amounts[i] > 1e-9) out.rings.push_back({std::move(tour), amounts[i]});
      out.gbytes += amounts[i];
    }
    std::stable_sort(out.rings.begin(), out.rings.end(),
                     [](const Ring& a, const Ring& b) { return a.gbytes > b.gbytes; });
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (lp_.prices()[i] > 1e-9) out.narrow_rows.push_back(rows_[i]);
    }
    return out;
  }

  const Routes& routes_;
  const std::span<const std::uint32_t> gpus_, nics_;
  std::vector<std::uint32_t> local_;  // row of Routes -> row of the LP
  std::vector<std::uint32_t> rows_;   // row of the LP -> row of Routes
  PackingLp lp_;
  std::vector<double> prices_;
  std::vector<std::vector<std::uint32_t>> tours_;
};

}  // namespace

RingPlan plan_rings(const Routes& routes, std::span<const std::uint32_t> gpus,
                    std::span<const std::uint32_t> nics) {
  if (gpus.empty()) return {};
  if (gpus.size() == 1 && nics.empty()) return {kNever, {{{gpus[0]}, kNever}}, {}};
  return Planner(routes, gpus, nics).plan();
}

}  // namespace regroup::placement
