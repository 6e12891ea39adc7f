// One function for what mpirun's options ask for and for what GPUs do, on one host and on several.
#include "launcher/placement/job_place.h"

#include <gmock/gmock.h>

#include "launcher/topology/read_topology.h"
#include "tests/launcher/placement/machines.h"

namespace regroup::placement {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

topology::Topology packages_without_l3() {
  auto read = topology::synthetic_topology("package:2 [numa] core:2 pu:2");  // processors 0-7
  EXPECT_TRUE(read.ok()) << read.status().message();
  return *read;
}

// Hosts h0, h1, ... of two packages with two cores each, as many slots as cores.
struct Cluster {
  topology::Fabric fabric;
  std::vector<HostShare> hosts;
};

Cluster of_processors(std::size_t count, std::uint32_t slots = 4) {
  topology::Machine machine;
  machine.processors = packages_without_l3();
  Cluster out{topology::flat_fabric(machine, host_names(count)), {}};
  for (std::uint32_t i = 0; i < count; ++i) out.hosts.push_back({i, 0, {}, slots, 0});
  return out;
}

// Hosts with 4 GPUs, two near each package, and a NIC near each GPU.
Cluster of_gpus(std::size_t count, std::uint32_t slots = 4) {
  topology::Machine machine = machine_of_text(
      "cpu amd\nnuma 0 cpus=0-3\nnuma 1 cpus=4-7\nswitch p0 at=numa:0\nswitch p1 at=numa:1\n"
      "gpu 0-1 at=p0 model=A arch=sm80 memory=8\ngpu 2-3 at=p1 model=A arch=sm80 memory=8\n"
      "nic n0 at=p0 kind=ib speed=100\nnic n1 at=p1 kind=ib speed=100\n");
  machine.processors = packages_without_l3();
  Cluster out{topology::flat_fabric(machine, host_names(count)), {}};
  for (std::uint32_t i = 0; i < count; ++i) out.hosts.push_back({i, 0xf, {}, slots, 0});
  return out;
}

JobRequest request(std::vector<std::uint32_t> counts, const std::string& map = "",
                   const std::string& bind = "") {
  JobRequest out;
  out.ranks.counts = std::move(counts);
  EXPECT_TRUE(map.empty() || spec::parse_map_by(map, out.ranks.mapping.map).ok());
  EXPECT_TRUE(bind.empty() || spec::parse_bind_to(bind, out.ranks.mapping.bind).ok());
  return out;
}

JobPlacement placed(const Cluster& cluster, const JobRequest& request) {
  auto out = place_job(cluster.fabric, cluster.hosts, request);
  EXPECT_TRUE(out.ok()) << out.status().message();
  return out.ok() ? *out : JobPlacement();
}

std::string refusal(const Cluster& cluster, const JobRequest& request) {
  auto out = place_job(cluster.fabric, cluster.hosts, request);
  EXPECT_FALSE(out.ok());
  return out.ok() ? "" : out.status().message();
}

std::vector<std::vector<int>> cpus(const JobPlacement& placement) {
  std::vector<std::vector<int>> out;
  for (const Slot& slot : placement.slots) out.push_back(slot.cpus);
  return out;
}

using Cpus = std::vector<int>;

TEST(JobPlace, EachHostBindsItsOwnMembers) {
  const JobPlacement out = placed(of_processors(2), request({6}));
  EXPECT_THAT(out.hosts, ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_THAT(cpus(out),
              ElementsAre(Cpus{0, 1}, Cpus{2, 3}, Cpus{4, 5}, Cpus{6, 7}, Cpus{0, 1}, Cpus{2, 3}));
  EXPECT_TRUE(out.policy.bound);
}

TEST(JobPlace, DealsMembersRoundRobinOverHosts) {
  const JobPlacement out = placed(of_processors(2), request({4}, "node", "package"));
  EXPECT_THAT(out.hosts, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(cpus(out), Each(Cpus{0, 1, 2, 3}));
}

TEST(JobPlace, CountsObjectsOfAllHosts) {
  const Cluster cluster = of_processors(2);
  const JobRequest ppr = request({4}, "ppr:1:package", "core");
  const JobPlacement out = placed(cluster, ppr);
  EXPECT_THAT(out.hosts, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(cpus(out), ElementsAre(Cpus{0, 1}, Cpus{4, 5}, Cpus{0, 1}, Cpus{4, 5}));
  EXPECT_EQ(members_of_ppr(cluster.fabric, cluster.hosts, ppr.ranks.mapping), 4U);
  EXPECT_THAT(refusal(cluster, request({5}, "ppr:1:package")), HasSubstr("5 members requested"));
}

TEST(JobPlace, PlacesAJobOnSeveralHosts) {
  const JobPlacement out = placed(of_processors(2), request({6}, "package:span", "core"));
  EXPECT_THAT(out.hosts, ElementsAre(0, 0, 1, 1, 0, 0));
  EXPECT_THAT(cpus(out),
              ElementsAre(Cpus{0, 1}, Cpus{4, 5}, Cpus{0, 1}, Cpus{4, 5}, Cpus{2, 3}, Cpus{6, 7}));
}

TEST(JobPlace, FollowsARankFileOverHosts) {
  JobRequest asked = request({3}, "rankfile:file=x");
  asked.ranks.mapping.ranks = {{0, "h1", {}, {1}}, {1, "h0", {}, {0}}, {2, "h1", {}, {2}}};
  const JobPlacement out = placed(of_processors(2), asked);
  EXPECT_THAT(out.hosts, ElementsAre(1, 0, 1));
  EXPECT_THAT(cpus(out), ElementsAre(Cpus{2, 3}, Cpus{0, 1}, Cpus{4, 5}));
  asked.ranks.mapping.ranks[0].host = "h7";
  EXPECT_THAT(refusal(of_processors(2), asked),
              HasSubstr("rank 0: host h7 is not a host of the job"));
}

TEST(JobPlace, GoesToTheNextHostWhereAListOfProcessorsIsUsed) {
  JobRequest asked = request({3});
  asked.ranks.mapping.cpu_set = {0, 1};
  const JobPlacement out = placed(of_processors(2), asked);
  EXPECT_THAT(out.hosts, ElementsAre(0, 0, 1));
  EXPECT_THAT(cpus(out), Each(Cpus{0, 1, 2, 3}));
  // Each program has the list for itself, unless a processor is for one member.
  asked.ranks.counts = {2, 3, 1};
  EXPECT_THAT(placed(of_processors(2, 9), asked).hosts, ElementsAre(0, 0, 0, 0, 1, 0));
  const JobPlacement each = placed(of_processors(2), request({1, 2}, "pe-list=0,1:ordered"));
  EXPECT_THAT(each.hosts, ElementsAre(0, 0, 1));
  EXPECT_THAT(cpus(each), ElementsAre(Cpus{0, 1}, Cpus{2, 3}, Cpus{0, 1}));
  asked.ranks.counts = {5};
  EXPECT_THAT(refusal(of_processors(2, 9), asked),
              HasSubstr("5 members requested, at most 2 on each for the list of processors"));
  asked.ranks.oversubscribe = true;
  EXPECT_THAT(placed(of_processors(2, 9), asked).hosts, ElementsAre(0, 0, 0, 1, 1));
}

TEST(JobPlace, GoesToTheNextHostWhereMembersMustBeBound) {
  const Cluster cluster = of_processors(2, 9);
  for (const char* map : {"", "slot", "core", "package"})
    EXPECT_THAT(placed(cluster, request({6}, map, "core")).hosts, ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_THAT(placed(cluster, request({1, 2}, "slot:PE=2")).hosts, ElementsAre(0, 0, 1));
  EXPECT_THAT(placed(cluster, request({6}, "package:span", "core")).hosts,
              ElementsAre(0, 0, 1, 1, 0, 0));
  EXPECT_THAT(refusal(cluster, request({9}, "core", "core")),
              HasSubstr("overload-allowed permits sharing"));
  // Members that need not be bound, or may share processors, fill the slots.
  EXPECT_THAT(placed(cluster, request({6}, "core")).hosts, Each(0U));
  EXPECT_THAT(placed(cluster, request({6}, "core", "core:overload-allowed")).hosts, Each(0U));
}

TEST(JobPlace, RanksBySpanOverTheObjectsOfAllHosts) {
  JobRequest asked = request({7}, "package", "core");
  asked.ranks.mapping.rank.kind = spec::RankBy::Kind::kSpan;
  const JobPlacement out = placed(of_processors(2), asked);
  EXPECT_THAT(out.hosts, ElementsAre(0, 0, 1, 1, 0, 0, 1));
  EXPECT_THAT(cpus(out), ElementsAre(Cpus{0, 1}, Cpus{4, 5}, Cpus{0, 1}, Cpus{4, 5}, Cpus{2, 3},
                                     Cpus{6, 7}, Cpus{2, 3}));
  asked.ranks.counts = {1, 5};
  EXPECT_THAT(placed(of_processors(2), asked).hosts, ElementsAre(0, 0, 0, 1, 1, 0));
}

TEST(JobPlace, NamesTheHostThatCannotBind) {
  Cluster cluster = of_processors(2);
  cluster.hosts[1].cpus = {0, 1};
  EXPECT_THAT(refusal(cluster, request({6}, "", "core")), HasSubstr("host h1: --bind-to core"));
}

TEST(JobPlace, BindsMembersNearTheirGpus) {
  JobRequest asked = request({4});
  asked.gpus = {1};
  const JobPlacement out = placed(of_gpus(1), asked);
  ASSERT_THAT(out.devices, SizeIs(4));
  for (std::size_t i = 0; i < 4; ++i) {
    const bool low = out.devices[i].gpus[0] < 2;
    EXPECT_THAT(out.slots[i].cpus, SizeIs(2));
    EXPECT_EQ(out.slots[i].cpus[0] < 4, low) << i;
  }
  asked.ranks.mapping.bind = request({1}, "", "numa").ranks.mapping.bind;
  EXPECT_THAT(cpus(placed(of_gpus(1), asked)), Each(SizeIs(4)));
  asked.ranks.mapping.bind = request({1}, "", "hwthread").ranks.mapping.bind;
  EXPECT_THAT(cpus(placed(of_gpus(1), asked)), Each(SizeIs(1)));
  asked.ranks.mapping.bind = request({1}, "", "none").ranks.mapping.bind;
  const JobPlacement unbound = placed(of_gpus(1), asked);
  EXPECT_THAT(cpus(unbound), Each(IsEmpty()));
  EXPECT_FALSE(unbound.policy.bound);
}

TEST(JobPlace, RefusesToShareCoresUnlessOverloadIsAllowed) {
  Cluster cluster = of_gpus(1);
  cluster.hosts[0].cpus = {0, 1, 4, 5};  // one core of each package
  JobRequest asked = request({4}, "", "core");
  asked.gpus = {1};
  EXPECT_THAT(refusal(cluster, asked), HasSubstr("h0 has fewer cores near"));
  asked.ranks.mapping.bind.overload_allowed = true;
  EXPECT_THAT(cpus(placed(cluster, asked)), Each(SizeIs(2)));
}

TEST(JobPlace, LimitsMembersOfAHostToItsSlots) {
  JobRequest asked = request({4});
  asked.gpus = {1};
  const JobPlacement out = placed(of_gpus(2, 2), asked);
  EXPECT_THAT(out.hosts, ElementsAre(0, 0, 1, 1));
  asked.ranks.counts = {5};
  EXPECT_THAT(refusal(of_gpus(2, 2), asked),
              HasSubstr("the nearest fit is 4; the hosts have fewer slots"));
  asked.ranks.oversubscribe = true;
  EXPECT_THAT(placed(of_gpus(2, 2), asked).devices, SizeIs(5));
}

TEST(JobPlace, AppliesMapByNodeAndPprToGpus) {
  JobRequest asked = request({4}, "node");
  asked.gpus = {1};
  EXPECT_THAT(placed(of_gpus(2), asked).hosts, ElementsAre(0, 1, 0, 1));
  asked = request({4}, "ppr:2:node");
  asked.gpus = {1};
  EXPECT_THAT(placed(of_gpus(2), asked).hosts, ElementsAre(0, 0, 1, 1));
  asked = request({4}, "ppr:1:package");
  asked.gpus = {1};
  EXPECT_THAT(refusal(of_gpus(2), asked),
              HasSubstr("--map-by of members with GPUs: expected slot"));
  asked = request({1}, "slot:PE=2");
  asked.gpus = {1};
  EXPECT_THAT(cpus(placed(of_gpus(1), asked)), Each(SizeIs(4)));
}

std::vector<std::uint32_t> gpus(const JobPlacement& placement) {
  std::vector<std::uint32_t> out;
  for (const DeviceSlot& slot : placement.devices)
    out.insert(out.end(), slot.gpus.begin(), slot.gpus.end());
  std::ranges::sort(out);
  return out;
}

TEST(JobPlace, ChoosesGpusNearEnoughCores) {
  Cluster cluster = of_gpus(1);
  JobRequest asked = request({1}, "slot:PE=2");
  asked.gpus = {1};
  EXPECT_THAT(gpus(placed(cluster, asked)), ElementsAre(0));
  cluster.hosts[0].cpus = {0, 1, 4, 5, 6, 7};  // a core of the first package, two of the other
  const JobPlacement one = placed(cluster, asked);
  EXPECT_THAT(gpus(one), ElementsAre(2));
  EXPECT_THAT(cpus(one), Each(ElementsAre(4, 5, 6, 7)));
  EXPECT_THAT(one.why, testing::Contains("GPUs not used: 2, with fewer than 2 cores near them"));
  asked = request({2}, "slot:PE=1");
  asked.gpus = {1};
  EXPECT_THAT(gpus(placed(cluster, asked)), ElementsAre(2, 3));
  asked.ranks.counts = {3};
  EXPECT_THAT(gpus(placed(cluster, asked)), ElementsAre(0, 2, 3));
  asked.ranks.counts = {4};
  EXPECT_THAT(refusal(cluster, asked),
              HasSubstr("need 2 cores, it has 1; fewer than one for each"));
  asked = request({1}, "slot:PE=3");
  asked.gpus = {1};
  EXPECT_THAT(refusal(cluster, asked),
              HasSubstr("GPUs not used: 4, with fewer than 3 cores near them"));
}

TEST(JobPlace, PutsAServerOnAHostWithCoresLeft) {
  Cluster cluster = of_gpus(1);
  cluster.hosts[0].free = 0x3;  // near the first package, as the first NIC
  JobRequest asked = request({1, 1}, "slot:PE=2");
  asked.gpus = {1, 0};
  asked.roles = {"worker", "ps"};
  const JobPlacement out = placed(cluster, asked);
  EXPECT_THAT(cpus(out), ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
}

// Ranks that share GPUs of both packages are near one of these each.
TEST(JobPlace, PutsRanksOfASetNearItsGpus) {
  JobRequest asked = request({4}, "", "core");
  asked.gpus = {4};
  asked.devices.set.ranks = 4;
  const JobPlacement out = placed(of_gpus(1), asked);
  std::set<std::vector<int>> seen;
  for (const Slot& slot : out.slots) seen.insert(slot.cpus);
  EXPECT_EQ(seen.size(), 4U);
}

// On another host, if need be.
TEST(JobPlace, LeavesOutHostsWithTooFewCores) {
  Cluster cluster = of_gpus(3);
  cluster.hosts[0].cpus = {0, 1, 4, 5};
  JobRequest asked = request({4}, "slot:PE=2");
  asked.gpus = {1};
  const JobPlacement out = placed(cluster, asked);
  EXPECT_THAT(out.hosts, Each(testing::Ge(1U)));
  EXPECT_THAT(cpus(out), Each(SizeIs(4)));
}

// A worker has 2 GPUs, the chief 1, servers none.
TEST(JobPlace, PlacesEachRoleByItsOwnNeeds) {
  JobRequest asked = request({2, 1, 1});
  asked.gpus = {0, 1, 2};
  asked.roles = {"ps", "chief", "worker"};
  asked.ranks.oversubscribe = true;
  const JobPlacement out = placed(of_gpus(2), asked);
  ASSERT_THAT(out.devices, SizeIs(4));
  EXPECT_THAT(out.devices[0].gpus, IsEmpty());
  EXPECT_EQ(out.devices[0].role, "ps");
  EXPECT_EQ(out.devices[1].role, "ps");
  EXPECT_THAT(out.devices[2].gpus, SizeIs(1));
  EXPECT_THAT(out.devices[3].gpus, SizeIs(2));
  EXPECT_FALSE(out.devices[2].host == out.devices[3].host &&
               std::find(out.devices[3].gpus.begin(), out.devices[3].gpus.end(),
                         out.devices[2].gpus[0]) != out.devices[3].gpus.end());
}

// Hydra goes over the hosts again and again, unless it is told what hydra does not know.
TEST(PlaceJob, GoesOnAsHydraDoesWhereHydraKnowsTheOptions) {
  const auto hosts_of = [](std::uint32_t members, const std::string& map, std::uint32_t most) {
    Cluster cluster = of_processors(2);
    for (HostShare& host : cluster.hosts) host.max_slots = most;
    JobRequest asked = request({members}, map);
    asked.ranks.compat = spec::Compat::kMpich;
    asked.ranks.oversubscribe = true;
    return placed(cluster, asked).hosts;
  };
  EXPECT_THAT(hosts_of(10, "", 0), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 0, 0));
  EXPECT_THAT(hosts_of(4, "node", 0), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(hosts_of(3, "ppr:2:node", 0), ElementsAre(0, 0, 1));
  EXPECT_THAT(hosts_of(10, "", 5), ElementsAre(0, 0, 0, 0, 0, 1, 1, 1, 1, 1));
}

}  // namespace
}  // namespace regroup::placement
