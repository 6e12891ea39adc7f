// PlacementScorer: rings carry what is said, no rings carry more, and the sets it chooses are the
// best there are.
#include "launcher/placement/rings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <random>
#include <set>

#include <fmt/format.h>

#include "launcher/placement/gang.h"
#include "launcher/topology/load_machine.h"
#include "tests/launcher/placement/machines.h"

namespace regroup::placement {
namespace {

using Ends = std::vector<std::uint32_t>;

// A machine as nobody would build it: up to 3 NUMA nodes and 4 switches, NVLinks at random, 1 to 3
// NICs.
topology::Machine random_machine(std::mt19937& random, int gpus) {
  const auto up_to = [&random](int most) {
    return static_cast<int>(random() % static_cast<unsigned>(most + 1));
  };
  const int numas = 1 + up_to(2), switches = up_to(4);
  std::string text = up_to(1) == 0 ? "cpu intel sys=6\n" : "cpu amd\n";
  for (int i = 0; i < numas; ++i) text += fmt::format("numa {} cpus={}-{}\n", i, 8 * i, 8 * i + 7);
  for (int i = 0; i < switches; ++i)
    text += fmt::format("switch p{} at=numa:{}\n", i, up_to(numas - 1));
  const auto place = [&]() {
    const int at = up_to(numas + switches - 1);
    return at < numas ? fmt::format("numa:{}", at) : fmt::format("p{}", at - numas);
  };
  for (int i = 0; i < gpus; ++i)
    text += fmt::format("gpu {} at={} model=X arch=sm80 memory=8\n", i, place());
  for (int i = 0, nics = 1 + up_to(2); i < nics; ++i)
    text += fmt::format("nic n{} at={} kind=ib speed={}\n", i, place(), 50 * (1 + up_to(7)));
  for (int a = 0; a < gpus; ++a) {
    for (int b = 0; b < a; ++b) {
      if (up_to(2) == 0) text += fmt::format("nvlink {} {} links={}\n", b, a, 1 + up_to(2));
    }
  }
  return machine_of_text(text);
}

std::vector<std::pair<std::uint32_t, double>> load_of(const Routes& routes, const Ends& ends,
                                                      double gbytes) {
  std::vector<double> load(routes.rows());
  for (std::size_t i = 0; i < ends.size(); ++i) {
    for (const Use& use : routes.between(ends[i], ends[(i + 1) % ends.size()]))
      load[use.row] += use.amount * gbytes / 2;
  }
  std::vector<std::pair<std::uint32_t, double>> out;
  for (std::uint32_t i = 0; i < load.size(); ++i) {
    if (load[i] > 0) out.emplace_back(i, load[i]);
  }
  return out;
}

// No link carries more than it can, and every ring passes each GPU once.
void expect_possible(const Routes& routes, const Ends& gpus, bool outward, const RingPlan& plan) {
  std::vector<double> load(routes.rows());
  double sum = 0;
  for (const Ring& ring : plan.rings) {
    Ends sorted = ring.ends;
    std::sort(sorted.begin(), sorted.end());
    Ends wanted = gpus;
    if (outward) wanted.push_back(sorted.back());
    EXPECT_EQ(sorted, wanted);
    for (const auto& [row, gbytes] : load_of(routes, ring.ends, ring.gbytes)) load[row] += gbytes;
    sum += ring.gbytes;
  }
  EXPECT_NEAR(sum, plan.gbytes, 1e-6 * plan.gbytes);
  for (std::uint32_t row = 0; row < load.size(); ++row)
    EXPECT_LE(load[row], routes.capacity(row) * (1 + 1e-6)) << routes.name(row);
}

// The optimum over all rings, and the proof: at its prices every ring costs at least 1, and all
// capacity together costs what the rings carry (duality of linear programs; no word of the solver
// is taken for it).
double proven_optimum(const Routes& routes, const Ends& gpus, const Ends& nics) {
  std::vector<double> capacity;
  for (std::uint32_t row = 0; row < routes.rows(); ++row) capacity.push_back(routes.capacity(row));
  PackingLp lp(capacity);
  std::vector<std::vector<Use>> columns;
  for (std::size_t i = 0; i < std::max<std::size_t>(1, nics.size()); ++i) {
    Ends ends = gpus;
    if (!nics.empty()) ends.push_back(nics[i]);
    do {
      if (ends.size() > 2 && ends[1] > ends.back()) continue;  // the same ring the other way round
      std::vector<Use> uses;
      bool joined = true;
      for (std::size_t at = 0; at < ends.size(); ++at)
        joined &= !routes.between(ends[at], ends[(at + 1) % ends.size()]).empty();
      if (!joined) continue;
      for (const auto& [row, gbytes] : load_of(routes, ends, 1)) uses.push_back({row, gbytes});
      columns.push_back(uses);
      lp.add(uses);
    } while (std::next_permutation(ends.begin() + 1, ends.end()));
  }
  double dual = 0;
  for (std::uint32_t row = 0; row < routes.rows(); ++row) {
    EXPECT_GE(lp.prices()[row], -1e-9);
    dual += lp.prices()[row] * capacity[row];
  }
  for (const std::vector<Use>& uses : columns) {
    double cost = 0;
    for (const Use& use : uses) cost += lp.prices()[use.row] * use.amount;
    EXPECT_GE(cost, 1 - 1e-6);
  }
  EXPECT_NEAR(dual, lp.value(), 1e-6 * lp.value());
  return dual;
}

TEST(Rings, ReachTheBandwidthOfKnownMachines) {
  const topology::Machine machine = dgx_1v();  // 20 GB/s an NVLink
  const Routes routes(machine);
  const auto gbytes = [&routes](const Ends& gpus) { return plan_rings(routes, gpus, {}).gbytes; };
  EXPECT_NEAR(gbytes({0, 3}), 40, 1e-6);        // two links
  EXPECT_NEAR(gbytes({4, 5}), 20, 1e-6);        // one
  EXPECT_NEAR(gbytes({0, 1, 2, 3}), 80, 1e-6);  // four rings, each link used in both directions
  EXPECT_NEAR(gbytes({0, 1, 2, 3, 4, 5, 6, 7}), 120, 2);  // all six links of each GPU, and PCIe
  EXPECT_LT(gbytes({0, 5}), 10);                          // over both processors
  EXPECT_TRUE(std::isinf(gbytes({6})));
}

TEST(Rings, AreOptimalOnRandomMachines) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const int count = 2 + round % 5;
    const topology::Machine machine = random_machine(random, count);
    const Routes routes(machine);
    Ends gpus(static_cast<std::size_t>(count)), nics;
    std::iota(gpus.begin(), gpus.end(), 0U);
    const RingPlan plan = plan_rings(routes, gpus, {});
    expect_possible(routes, gpus, false, plan);
    EXPECT_NEAR(plan.gbytes, proven_optimum(routes, gpus, {}), 1e-6 * plan.gbytes)
        << "round " << round;
    if (count > 5) continue;
    for (std::size_t i = 0; i < machine.nics.size(); ++i) nics.push_back(machine.nic_end(i));
    const RingPlan outward = plan_rings(routes, gpus, nics);
    expect_possible(routes, gpus, true, outward);
    EXPECT_NEAR(outward.gbytes, proven_optimum(routes, gpus, nics), 1e-6 * outward.gbytes)
        << "round " << round;
  }
}

// Trees need no score of their own: a ring of n ranks that carries x holds n chains, which together
// carry what an all-reduce by trees needs for x, over the same links.
TEST(Rings, ContainTreesOfTheSameBandwidth) {
  std::mt19937 random(2);
  for (int round = 0; round < 20; ++round) {
    const int count = 3 + round % 6;
    const topology::Machine machine = random_machine(random, count);
    const Routes routes(machine);
    Ends gpus(static_cast<std::size_t>(count));
    std::iota(gpus.begin(), gpus.end(), 0U);
    const RingPlan plan = plan_rings(routes, gpus, {});
    std::vector<double> load(routes.rows());
    double reduced = 0;
    const double n = count;
    for (const Ring& ring : plan.rings) {
      // A chain leaves one hop out; up it sums, down it spreads.
      const double each = ring.gbytes / (2 * (n - 1));
      for (std::size_t left_out = 0; left_out < ring.ends.size(); ++left_out) {
        reduced += each;
        for (std::size_t hop = 0; hop < ring.ends.size(); ++hop) {
          if (hop == left_out) continue;
          for (const Use& use :
               routes.between(ring.ends[hop], ring.ends[(hop + 1) % ring.ends.size()]))
            load[use.row] += use.amount * each;
        }
      }
    }
    EXPECT_NEAR(reduced * 2 * (n - 1) / n, plan.gbytes, 1e-6 * plan.gbytes);
    for (std::uint32_t row = 0; row < load.size(); ++row)
      EXPECT_LE(load[row], routes.capacity(row) * (1 + 1e-6));
  }
}

GpuSet first_of(GpuSet free, std::uint32_t count) {
  GpuSet out = 0;
  for (const std::uint32_t gpu : members_of(free)) {
    if (count_of(out) < count) out |= bit_of(gpu);
  }
  return out;
}

TEST(PlacementScorer, AgreesWithBruteForceUpToEightGpus) {
  std::mt19937 random(3);
  std::vector<topology::Machine> machines = {dgx_1v(), dgx_1p(), pcie_node()};
  for (const auto& entry : std::filesystem::directory_iterator("tests/machines")) {
    const std::string kind = entry.path().extension();
    if (kind != ".xml" && kind != ".topo" && kind != ".smi") continue;
    auto machine = topology::load_machine(entry.path());
    ASSERT_TRUE(machine.ok()) << machine.status().message();
    if (!machine->gpus.empty() && machine->gpus.size() <= 8)
      machines.push_back(std::move(*machine));
  }
  ASSERT_GT(machines.size(), 10U);
  for (int i = 0; i < 25; ++i) machines.push_back(random_machine(random, 2 + i % 7));
  for (const topology::Machine& machine : machines) {
    const GpuSet all = bit_of(machine.gpus.size()) - 1;
    for (int round = 0; round < 4; ++round) {
      const GpuSet free = round == 0 ? all : (random() & all) | 1;
      const std::uint32_t count = 1 + static_cast<std::uint32_t>(random()) % count_of(free);
      PlacementScorer scorer(machine), other(machine);
      const GpuSetChoice chosen = scorer.best(free, count, 0, RingScope::kInside);
      EXPECT_EQ(count_of(chosen.gpus), count);
      EXPECT_EQ(chosen.gpus & ~free, 0U);
      for (GpuSet set = 1; set <= all; ++set) {
        if (count_of(set) != count || (set & ~free) != 0) continue;
        EXPECT_FALSE(other.score(set, free, RingScope::kInside).better_than(chosen.score))
            << machine.name << ": " << set << " is better than " << chosen.gpus << " of " << free;
      }
    }
  }
}

// Where a job of `sets` GPUs goes by other rules.
std::vector<HostPart> filled(const std::vector<HostShare>& hosts, std::uint32_t sets) {
  std::vector<HostPart> out;
  for (const HostShare& share : hosts) {
    const std::uint32_t here = std::min(sets, count_of(share.free));
    if (here > 0) out.push_back({share.host, first_of(share.free, here), share.free});
    sets -= here;
  }
  return out;
}

std::vector<HostPart> first_fit(const std::vector<HostShare>& hosts, std::uint32_t sets) {
  for (const HostShare& share : hosts) {
    if (count_of(share.free) >= sets) return filled({share}, sets);
  }
  return filled(hosts, sets);
}

std::vector<HostPart> best_fit(std::vector<HostShare> hosts, std::uint32_t sets) {
  std::stable_sort(hosts.begin(), hosts.end(), [](const HostShare& a, const HostShare& b) {
    return count_of(a.free) < count_of(b.free);
  });
  return first_fit(hosts, sets);
}

// Lowest common ancestor: the fewest hosts, and in the last one GPUs of the fewest NUMA nodes.
std::vector<HostPart> lowest_ancestor(const topology::Fabric& fabric, std::vector<HostShare> hosts,
                                      std::uint32_t sets) {
  std::stable_sort(hosts.begin(), hosts.end(), [](const HostShare& a, const HostShare& b) {
    return count_of(a.free) > count_of(b.free);
  });
  std::vector<HostPart> out;
  for (const HostShare& share : hosts) {
    const topology::Machine& machine = fabric.machines[fabric.hosts[share.host].machine];
    std::vector<std::uint32_t> gpus = members_of(share.free);
    std::stable_sort(gpus.begin(), gpus.end(),
                     [&](auto a, auto b) { return machine.gpus[a].numa < machine.gpus[b].numa; });
    HostPart part{share.host, 0, share.free};
    for (const std::uint32_t gpu : gpus) {
      if (sets > 0) part.gpus |= bit_of(gpu), --sets;
    }
    if (part.gpus != 0) out.push_back(part);
  }
  return out;
}

void expect_best(const topology::Fabric& fabric, const std::vector<HostShare>& allocation,
                 std::uint32_t sets, const std::vector<std::vector<HostPart>>& rivals,
                 const std::string& what) {
  DeviceRequest request;
  request.sets = sets;
  auto ours = place_on_devices(fabric, allocation, request);
  PlacementScorers scorers(fabric);
  for (const std::vector<HostPart>& theirs : rivals) {
    const double gbytes = predict(scorers, theirs).gbytes;
    if (gbytes <= 0) continue;
    ASSERT_TRUE(ours.ok()) << ours.status().message();
    EXPECT_GE(ours->predicted.gbytes, gbytes * (1 - 1e-6)) << what << ", " << sets << " ranks";
  }
}

std::vector<HostShare> random_shares(std::mt19937& random, std::size_t hosts, std::size_t gpus,
                                     bool all) {
  std::vector<HostShare> out;
  const GpuSet every = bit_of(gpus) - 1;
  for (std::uint32_t host = 0; host < hosts; ++host)
    out.push_back({host, all ? every : random() & every, {}});
  return out;
}

std::uint32_t room_of(const std::vector<HostShare>& shares) {
  std::uint32_t out = 0;
  for (const HostShare& share : shares) out += count_of(share.free);
  return out;
}

// Switches of two levels with narrow uplinks, two kinds of hosts.
TEST(Placement, IsNeverWorseThanSimpleRulesUnderNarrowUplinks) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const int gpus = 2 + round % 7;
    const std::size_t hosts = 4 + random() % 6, switches = 2 + random() % 2;
    topology::Fabric fabric =
        topology::flat_fabric(random_machine(random, gpus), host_names(hosts));
    fabric.machines.push_back(random_machine(random, gpus));
    fabric.nodes = {{"root", topology::FabricKind::kSwitch, topology::kNoPart, 1}};
    for (std::size_t i = 0; i < switches; ++i) {
      const double up = std::array{0.5, 2.0, 6.0, 25.0}[random() % 4];
      fabric.nodes.push_back({"s" + std::to_string(i), topology::FabricKind::kSwitch, 0, 0, up});
    }
    for (topology::FabricHost& host : fabric.hosts) {
      host.leaf = 1 + static_cast<std::uint32_t>(random() % switches);
      host.machine = round % 2 == 0 ? 0 : static_cast<std::uint32_t>(random() % 2);
    }
    const auto allocation =
        random_shares(random, hosts, static_cast<std::size_t>(gpus), round % 3 == 0);
    const std::uint32_t free = room_of(allocation);
    if (free < 2) continue;
    const std::uint32_t sets = 2 + static_cast<std::uint32_t>(random()) % (free - 1);
    std::vector<std::vector<HostPart>> rivals{first_fit(allocation, sets),
                                              best_fit(allocation, sets),
                                              lowest_ancestor(fabric, allocation, sets)};
    for (std::uint32_t leaf = 1; leaf <= switches; ++leaf) {  // of one switch alone
      std::vector<HostShare> below;
      for (const HostShare& share : allocation) {
        if (fabric.hosts[share.host].leaf == leaf) below.push_back(share);
      }
      if (room_of(below) < sets) continue;
      rivals.push_back(best_fit(below, sets));
      rivals.push_back(lowest_ancestor(fabric, below, sets));
    }
    expect_best(fabric, allocation, sets, rivals, fmt::format("round {}", round));
  }
}

// Whole hosts of one switch before halves of hosts of two.
TEST(Placement, StaysUnderASwitchWithANarrowUplink) {
  topology::Fabric fabric = topology::flat_fabric(dgx_1v(), host_names(8));
  fabric.nodes = {{"root", topology::FabricKind::kSwitch, topology::kNoPart, 1}};
  for (const char* name : {"s1", "s2"})
    fabric.nodes.push_back({name, topology::FabricKind::kSwitch, 0, 0, 10.0});
  std::vector<HostShare> allocation;
  for (std::uint32_t host = 0; host < 8; ++host) {
    fabric.hosts[host].leaf = 1 + host / 4;
    allocation.push_back({host, 0xff, {}});
  }
  DeviceRequest request;
  request.sets = 32;
  const auto out = place_on_devices(fabric, allocation, request);
  ASSERT_TRUE(out.ok()) << out.status().message();
  EXPECT_GT(out->predicted.gbytes, 10.1);
  std::set<std::uint32_t> leaves;
  for (const DeviceSlot& slot : out->ranks) leaves.insert(fabric.hosts[slot.host].leaf);
  EXPECT_EQ(leaves.size(), 1U);
}

TEST(Placement, IsNeverWorseThanSimpleRules) {
  std::mt19937 random(4);
  for (int round = 0; round < 60; ++round) {
    const int gpus = 2 + round % 11;
    const std::size_t hosts = 1 + random() % 5;
    const topology::Fabric fabric =
        topology::flat_fabric(random_machine(random, gpus), host_names(hosts));
    const auto allocation =
        random_shares(random, hosts, static_cast<std::size_t>(gpus), round % 3 == 0);
    const std::uint32_t free = room_of(allocation);
    if (free < 2) continue;
    const std::uint32_t sets = 2 + static_cast<std::uint32_t>(random()) % (free - 1);
    expect_best(fabric, allocation, sets,
                {first_fit(allocation, sets), best_fit(allocation, sets),
                 lowest_ancestor(fabric, allocation, sets)},
                fmt::format("round {}", round));
  }
}

}  // namespace
}  // namespace regroup::placement
