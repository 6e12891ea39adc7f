// Placed members receive what hosts report about themselves.
#include "launcher/placement/cluster_view.h"

#include <gmock/gmock.h>

#include <chrono>

#include "launcher/topology/read_topology.h"
#include "tests/launcher/placement/machines.h"

namespace regroup::placement {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

HostInventory of_eight_cores() {
  HostInventory out;
  auto read = topology::synthetic_topology("package:2 [numa] core:4 pu:1");
  EXPECT_TRUE(read.ok()) << read.status().message();
  out.machine.processors = *read;
  for (const topology::HwThread& thread : out.machine.processors.threads)
    out.cpus.push_back(thread.os);
  return out;
}

// As another host says it.
HostInventory with_quota(std::uint32_t quota) {
  HostInventory inventory = of_eight_cores();
  inventory.quota = quota;
  auto told = inventory_from_json(inventory_to_json(inventory));
  EXPECT_TRUE(told.ok()) << told.status().message();
  return *told;
}

TEST(ClusterView, BoundsThreadsByTheQuotaOfEachHost) {
  spec::JobSpec spec;
  spec.mapping.bind = {.kind = spec::BindTo::Kind::kUnit, .unit = spec::Unit::kPackage};
  spec.apps.resize(1);
  JobRequest request = job_request(spec, {4}, {});
  const auto placed =
      place_on_cluster(spec, {{"a", 2, 0, with_quota(0)}, {"b", 2, 0, with_quota(3)}}, request);
  ASSERT_TRUE(placed.ok()) << placed.status().message();
  ASSERT_THAT(placed->placement.hosts, ElementsAre(0, 0, 1, 1));
  // Two members of each host share a package of four cores, or have one each.
  const std::vector<std::uint32_t> free = placed->threads({2, 2});
  EXPECT_EQ(free[0], free[1]);
  EXPECT_GE(free[0], 2U);
  EXPECT_EQ(free[2], 1U);
  EXPECT_EQ(free[3], 1U);
}

TEST(ClusterView, CountsMembersByTheObjectsOfAllHosts) {
  spec::JobSpec spec;
  spec.mapping.map = {
      .kind = spec::MapBy::Kind::kPerUnit, .unit = spec::Unit::kPackage, .per_unit = 2};
  const std::vector<ClusterHost> hosts{{"a", 4, 0, of_eight_cores()},
                                       {"b", 4, 0, of_eight_cores()}};
  EXPECT_TRUE(counts_objects(spec));
  EXPECT_EQ(*members_of(spec, hosts), (spec::MemberRange{8, 8}));
  spec.mapping.map.unit = spec::Unit::kL3Cache;
  EXPECT_THAT(members_of(spec, hosts).status().message(), HasSubstr("the hosts have none"));
  spec.min = spec.max = 3;  // -np counts more
  EXPECT_FALSE(counts_objects(spec));
  EXPECT_EQ(*members_of(spec, {}), (spec::MemberRange{3, 3}));
}

TEST(ClusterView, RefusesAnInventoryWithoutAQuota) {
  std::string text = inventory_to_json(of_eight_cores());
  text.erase(text.find("\"quota\""), std::string("\"quota\":0,").size());
  EXPECT_EQ(inventory_from_json(text).code(), base::Code::kDataLoss);
}

HostInventory with_claims() {
  HostInventory inventory = of_eight_cores();
  const topology::Topology processors = inventory.machine.processors;
  inventory.machine = dgx_1v();
  inventory.machine.processors = processors;
  inventory.free = set_of({0, 1, 2, 3, 4, 5, 6, 7});
  inventory.claimed = {{0, "job a"}, {4, "job b"}};
  return inventory;
}

TEST(ClusterView, NamesInAnInventoryHaveNoControlCharacters) {
  HostInventory inventory = with_claims();
  inventory.machine.gpus[0].product = "A100 \x1b[2J\x7f \xc2\x9b!\n\xc3\xa9";
  inventory.claimed[0] = "job\r7";
  const auto told = inventory_from_json(inventory_to_json(inventory));
  ASSERT_TRUE(told.ok()) << told.status().message();
  EXPECT_EQ(told->machine.gpus[0].product, "A100 ?[2J? ?!?\xc3\xa9");
  EXPECT_EQ(told->claimed.at(0), "job?7");
}

// Converting such a number to an integer is undefined.
TEST(ClusterView, RefusesAnInventoryWithFractions) {
  const std::string good = inventory_to_json(with_claims());
  ASSERT_TRUE(inventory_from_json(good).ok());
  for (const std::string count : {"\"cpus\":[0", "\"free\":255", "\"claimed\":[[0", "\"quota\":0",
                                  "\"numa\":0", "\"port\":1", "\"lanes\":16", "\"kind\":0"}) {
    std::string bad = good;
    ASSERT_NE(bad.find(count), std::string::npos) << count << " in " << good;
    bad.insert(bad.find(count) + count.size(), "e300");
    EXPECT_EQ(inventory_from_json(bad).code(), base::Code::kDataLoss) << bad;
  }
}

// Its name would be looked up.
TEST(ClusterView, RefusesANicOfAnUnknownKind) {
  HostInventory inventory = with_claims();
  inventory.machine.nics.at(0).kind = static_cast<topology::NicKind>(200);
  EXPECT_FALSE(inventory_from_json(inventory_to_json(inventory)).ok());
  inventory = with_claims();
  inventory.nics = inventory.machine.nics;
  EXPECT_TRUE(inventory_from_json(inventory_to_json(inventory)).ok());
  inventory.nics[0].kind = static_cast<topology::NicKind>(4);
  EXPECT_FALSE(inventory_from_json(inventory_to_json(inventory)).ok());
}

// As long as a message may be: the launcher does nothing else meanwhile.
TEST(ClusterView, ReadsAnInventoryOfControlCharactersInLinearTime) {
  std::string name(8 << 20, '\xc2');
  for (std::size_t i = 1; i < name.size(); i += 2) name[i] = '\x9b';
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(inventory_from_json("{\"machine\":\"" + name + "\"}").ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(ClusterView, RemovesTheHighestRanksOfAnElasticJobFirst) {
  spec::JobSpec spec;
  spec.elastic = true;
  spec.min = 2;
  spec.mapping.gpus = 1;
  spec.apps.resize(1);
  HostInventory inventory = with_claims();
  inventory.claimed.clear();
  const auto placed = place_on_cluster(spec, {{"a", 0, 0, inventory}}, job_request(spec, {8}, {}));
  ASSERT_TRUE(placed.ok()) << placed.status().message();
  EXPECT_THAT(placed->placement.shrink_order, ElementsAre(7, 6, 5, 4, 3, 2));
  EXPECT_THAT(placed->placement.why, testing::Contains(HasSubstr("shrink order, down to 2: 7, 6")));
}

TEST(ClusterView, UsesOnlyGrantedGpus) {
  spec::JobSpec spec;
  spec.mapping.gpus = 1;
  spec.apps.resize(1);
  HostInventory inventory = with_claims();
  keep_granted({.name = "a", .gpus = {"4", "5"}}, inventory);
  EXPECT_EQ(inventory.free, set_of({4, 5}));
  const JobRequest request = job_request(spec, {2}, {});
  const auto refused = place_on_cluster(spec, {{"a", 2, 0, inventory}}, request);
  EXPECT_THAT(refused.status().message(), HasSubstr("not free: GPU 4 of a, used by job b ("));

  spec.oversubscribe = true;
  const auto shared = place_on_cluster(spec, {{"a", 2, 0, inventory}}, job_request(spec, {2}, {}));
  ASSERT_TRUE(shared.ok()) << shared.status().message();
  GpuSet given = 0;
  for (const DeviceSlot& slot : shared->placement.devices) {
    for (const std::uint32_t gpu : slot.gpus) given |= bit_of(gpu);
  }
  EXPECT_EQ(given, set_of({4, 5}));
  EXPECT_THAT(shared->warnings, ElementsAre("GPU 4 of a is shared with job b"));
}

TEST(ClusterView, IgnoresGpuNumbersOfAnAllocatorWhenOnlyGrantedGpusAreVisible) {
  HostInventory inventory = with_claims();
  inventory.free = set_of({0, 1});
  keep_granted({.name = "a", .cores = {90, 91}, .gpus = {"4", "5"}}, inventory);
  EXPECT_EQ(inventory.free, set_of({0, 1}));
  EXPECT_EQ(inventory.cpus.size(), 8U);
  keep_granted({.name = "a", .cores = {2, 3, 90}}, inventory);
  EXPECT_THAT(inventory.cpus, ElementsAre(2, 3));
}

}  // namespace
}  // namespace regroup::placement
