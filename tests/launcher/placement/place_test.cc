// Cases that mpirun cannot be asked for.
#include "launcher/placement/place.h"

#include <gmock/gmock.h>

#include <map>
#include <random>

#include "launcher/topology/read_topology.h"

namespace regroup::placement {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

topology::Topology two_packages() {
  auto read = topology::synthetic_topology("package:2 [numa] l3:1 l2:4 l1:1 core:1 pu:2");
  EXPECT_TRUE(read.ok()) << read.status().message();
  return *read;
}

PlaceRequest request(std::uint32_t members, const std::string& map = "",
                     const std::string& bind = "", spec::Compat compat = spec::Compat::kOpenMpi) {
  PlaceRequest out{{}, compat, {members}, false};
  if (!map.empty()) {
    EXPECT_TRUE(spec::parse_map_by(map, out.mapping.map).ok());
  }
  if (!bind.empty()) {
    EXPECT_TRUE(spec::parse_bind_to(bind, out.mapping.bind).ok());
  }
  return out;
}

std::vector<std::vector<int>> cpus(const base::Result<Placement>& placement) {
  std::vector<std::vector<int>> out;
  EXPECT_TRUE(placement.ok()) << placement.status().message();
  if (!placement.ok()) return out;
  for (const Slot& slot : placement->ranks) out.push_back(slot.cpus);
  return out;
}

TEST(Place, BindsNoMemberBeyondTheCoresUnlessRequested) {
  auto placement = place_on_processors(two_packages(), request(9));
  EXPECT_THAT(cpus(placement), testing::Each(testing::IsEmpty()));
  EXPECT_THAT(placement->ranks[0].why, HasSubstr("9 members on 8 cores"));
  auto refused = place_on_processors(two_packages(), request(9, "", "core"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.code(), base::Code::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("--bind-to core"));
  EXPECT_THAT(refused.status().message(), HasSubstr("overload-allowed"));
}

TEST(Place, SharesAListOfProcessorsAmongProgramsAndBeyondTheSlots) {
  PlaceRequest wanted = request(9);
  wanted.mapping.cpu_set = {0, 1};
  EXPECT_EQ(place_on_processors(two_packages(), wanted).code(), base::Code::kResourceExhausted);
  wanted.counts = {2, 2, 2, 2, 1};
  EXPECT_THAT(cpus(place_on_processors(two_packages(), wanted)),
              testing::Each(ElementsAre(0, 1, 2, 3)));
  wanted.counts = {9};
  wanted.oversubscribe = true;
  EXPECT_THAT(cpus(place_on_processors(two_packages(), wanted)),
              testing::Each(ElementsAre(0, 1, 2, 3)));
}

TEST(Place, BindsNoMemberBeyondTheCoresIfTheMachineLacksAListedOne) {
  PlaceRequest wanted = request(9);
  wanted.mapping.cpu_set = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_THAT(cpus(place_on_processors(two_packages(), wanted)), testing::Each(testing::IsEmpty()));
}

TEST(Place, BindsNoMemberOfARankFileBeyondTheCoresAndSlots) {
  PlaceRequest wanted = request(9, "rankfile:file=x");
  for (std::uint32_t rank = 0; rank < 9; ++rank)
    wanted.mapping.ranks.push_back({rank, "h0", {}, {rank % 8}});
  EXPECT_EQ(place_on_processors(two_packages(), wanted).code(), base::Code::kResourceExhausted);
  wanted.oversubscribe = true;
  EXPECT_THAT(cpus(place_on_processors(two_packages(), wanted)), testing::Each(testing::IsEmpty()));
}

TEST(Place, BindsToAllThreadsOfACore) {
  EXPECT_THAT(cpus(place_on_processors(two_packages(), request(2))),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(cpus(place_on_processors(two_packages(), request(2, "", "hwthread"))),
              ElementsAre(ElementsAre(0), ElementsAre(1)));
}

TEST(Place, BindsToOneThreadIfMembersAreMappedToThreads) {
  for (const char* map : {"hwthread", "hwthread:PE=1"})
    EXPECT_THAT(cpus(place_on_processors(two_packages(), request(2, map))),
                ElementsAre(ElementsAre(0), ElementsAre(1)));
}

TEST(Place, BindsToAPartThatIsLargerThanTheMappedObject) {
  auto flat = topology::synthetic_topology("[numa] package:2 core:2 pu:1");
  ASSERT_TRUE(flat.ok()) << flat.status().message();
  EXPECT_THAT(cpus(place_on_processors(*flat, request(4, "package", "numa"))),
              testing::Each(ElementsAre(0, 1, 2, 3)));
}

TEST(Place, GivesProgramsOfPprProcessorsOfTheirOwnWhileThereAreSome) {
  PlaceRequest wanted = request(0, "ppr:1:core");
  wanted.counts = {1, 2};
  EXPECT_THAT(cpus(place_on_processors(two_packages(), wanted)),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5)));
  wanted.mapping.bind = request(1, "", "core:overload-allowed").mapping.bind;
  wanted.counts = {7, 2};
  auto placement = cpus(place_on_processors(two_packages(), wanted));
  ASSERT_EQ(placement.size(), 9U);
  EXPECT_THAT(placement[7], ElementsAre(0, 1));
  EXPECT_THAT(placement[8], ElementsAre(14, 15));
}

TEST(Place, GivesMembersTheNextProcessorsOfAnObjectOfSeveralPackages) {
  auto flat = topology::synthetic_topology("[numa] package:2 core:3 pu:1");
  ASSERT_TRUE(flat.ok()) << flat.status().message();
  EXPECT_THAT(cpus(place_on_processors(*flat, request(3, "numa:PE=2"))),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5)));
  // Where no object is named, a member stays within a package.
  EXPECT_THAT(cpus(place_on_processors(*flat, request(2, "slot:PE=2"))),
              ElementsAre(ElementsAre(0, 1), ElementsAre(3, 4)));
  EXPECT_EQ(place_on_processors(*flat, request(3, "slot:PE=2")).code(),
            base::Code::kResourceExhausted);
}

TEST(Place, RanksMembersOfPprOverObjectsWhereTheMappingSpansHosts) {
  EXPECT_THAT(cpus(place_on_processors(two_packages(), request(3, "ppr:2:package:SPAN", "core"))),
              ElementsAre(ElementsAre(0, 1), ElementsAre(8, 9), ElementsAre(2, 3)));
}

TEST(Place, SkipsAFullObject) {
  const topology::Topology uneven =
      topology::restricted(two_packages(), {0, 1, 8, 9, 10, 11, 12, 13});
  EXPECT_THAT(
      cpus(place_on_processors(uneven, request(4, "package", "core"))),
      ElementsAre(ElementsAre(0, 1), ElementsAre(8, 9), ElementsAre(10, 11), ElementsAre(12, 13)));
}

TEST(Place, AcceptsAnAffinityMaskWithHalfACore) {
  EXPECT_THAT(
      cpus(place_on_processors(topology::restricted(two_packages(), {1, 4, 5}), request(2))),
      ElementsAre(ElementsAre(1), ElementsAre(4, 5)));
}

TEST(Place, MapsWithinACpuSet) {
  PlaceRequest wanted = request(3, "package", "core");
  wanted.mapping.cpu_set = {2, 3, 7};
  auto placement = place_on_processors(two_packages(), wanted);
  EXPECT_THAT(cpus(placement),
              ElementsAre(ElementsAre(4, 5), ElementsAre(6, 7), ElementsAre(14, 15)));
  EXPECT_EQ(binding_text(two_packages(), placement->ranks[2].threads, false),
            "package[1][core:L7]");
  wanted.mapping.cpu_set = {8};
  auto refused = place_on_processors(two_packages(), wanted);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(),
              HasSubstr("--cpu-set: core 8 is not available to this job, only 0-7"));
}

// The strings are mpirun's, in the order of its levels.
TEST(Place, NamesTheObjectsAroundEachBinding) {
  EXPECT_EQ(locality_text(two_packages(), {0, 1}), "SK0:L30:L20:L10:CR0:HT0-1:NM0");
  EXPECT_EQ(locality_text(two_packages(), {2, 9, 11}),
            "SK0-1:L30-1:L21,4-5:L11,4-5:CR1,4-5:HT2,9,11:NM0-1");
  EXPECT_EQ(locality_text(two_packages(), {}), "");
  auto plain = topology::synthetic_topology("core:4 pu:1");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(locality_text(*plain, {3}), "SK0:CR3:HT3:NM0");
}

TEST(Place, RanksRoundRobinByACoarserObject) {
  PlaceRequest wanted = request(8, "core");
  ASSERT_TRUE(spec::parse_rank_by("package", wanted.mapping.rank).ok());
  auto placement = place_on_processors(two_packages(), wanted);
  ASSERT_TRUE(placement.ok());
  EXPECT_EQ(placement->ranks[1].object, "core 4");
  EXPECT_EQ(placement->ranks[2].object, "core 1");
}

TEST(Place, NamesObjectsThatTheMachineLacks) {
  auto plain = topology::synthetic_topology("core:4 pu:1");
  ASSERT_TRUE(plain.ok());
  for (const auto& [map, bind, text] :
       {std::tuple{"l3cache", "", "--map-by l3cache: this machine has no l3cache"},
        std::tuple{"", "l2cache", "this machine has no l2cache"},
        std::tuple{"core:PE=2", "", "--map-by core:PE=2: no core has 2 cores"}}) {
    auto refused = place_on_processors(*plain, request(2, map, bind));
    ASSERT_FALSE(refused.ok()) << map << bind;
    EXPECT_THAT(refused.status().message(), HasSubstr(text));
  }
}

TEST(Place, HydraBindsOnlyOnRequestAndWrapsAround) {
  EXPECT_THAT(cpus(place_on_processors(two_packages(), request(3, "", "", spec::Compat::kMpich))),
              testing::Each(testing::IsEmpty()));
  EXPECT_THAT(
      cpus(place_on_processors(two_packages(), request(3, "", "core:3", spec::Compat::kMpich))),
      ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5), ElementsAre(6, 7, 8, 9, 10, 11),
                  ElementsAre(0, 1, 12, 13, 14, 15)));
  EXPECT_THAT(cpus(place_on_processors(two_packages(),
                                       request(3, "package", "core", spec::Compat::kMpich))),
              ElementsAre(ElementsAre(0, 1), ElementsAre(8, 9), ElementsAre(2, 3)));
  // Each to the part around the next object.
  EXPECT_THAT(cpus(place_on_processors(two_packages(),
                                       request(3, "hwthread", "core", spec::Compat::kMpich))),
              ElementsAre(ElementsAre(0, 1), ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(
      cpus(place_on_processors(two_packages(), request(3, "", "user:0+1,5", spec::Compat::kMpich))),
      ElementsAre(ElementsAre(0, 1), ElementsAre(5), ElementsAre(0, 1)));
  EXPECT_FALSE(
      place_on_processors(two_packages(), request(1, "", "user:99", spec::Compat::kMpich)).ok());
}

// Whatever is asked for on whatever machine: every member has a place within the mask, and where
// sharing was not allowed nobody shares a processor with another that was bound to cores of its
// own.
TEST(Place, KeepsItsInvariantsOnRandomRequests) {
  std::mt19937 random(7);
  const auto pick = [&random](auto list) { return *(list.begin() + random() % list.size()); };
  using Words = std::initializer_list<const char*>;
  std::vector<topology::Topology> machines;
  for (const char* words : Words{"package:2 [numa] l3:1 l2:4 l1:1 core:1 pu:2", "core:6 pu:1",
                                 "package:4 l3:2 [numa] core:2 pu:4", "package:1 core:3 pu:2"}) {
    auto machine = topology::synthetic_topology(words);
    ASSERT_TRUE(machine.ok()) << machine.status().message();
    machines.push_back(std::move(*machine));
  }
  int bound = 0;
  for (int i = 0; i < 4000; ++i) {
    topology::Topology machine = pick(machines);
    std::erase_if(machine.threads,
                  [&random](const topology::HwThread&) { return random() % 5 == 0; });
    PlaceRequest wanted = request(
        1 + random() % 20,
        pick(Words{"", "slot", "core", "hwthread", "l3cache", "numa", "package", "node",
                   "package:PE=2", "slot:PE=3", "ppr:2:package", "package:span", "slot:hwtcpus"}),
        pick(Words{"", "none", "core", "hwthread", "numa", "package", "core:overload-allowed"}),
        pick(std::initializer_list<spec::Compat>{spec::Compat::kOpenMpi, spec::Compat::kMpich}));
    ASSERT_TRUE(spec::parse_rank_by(pick(Words{"slot", "fill", "span", "node", "package"}),
                                    wanted.mapping.rank)
                    .ok());
    auto placement = place_on_processors(machine, wanted);
    if (!placement.ok()) {
      ASSERT_THAT(placement.status().message(), testing::Not(testing::IsEmpty()));
      continue;
    }
    ASSERT_EQ(placement->ranks.size(), wanted.members());
    std::map<int, int> users;
    for (const Slot& slot : placement->ranks) {
      ASSERT_EQ(slot.cpus.empty(), !placement->policy.bound) << i;
      ASSERT_EQ(topology::os_numbers(machine, slot.threads), slot.cpus);
      for (const int cpu : slot.cpus) ++users[cpu];
    }
    const Policy& policy = placement->policy;
    const bool own = policy.bound && (policy.cpus > 1 || policy.bind_unit <= spec::Unit::kCore) &&
                     !(policy.hwthreads && policy.bind_unit == spec::Unit::kCore) &&
                     wanted.compat == spec::Compat::kOpenMpi &&
                     !wanted.mapping.bind.overload_allowed;
    for (const auto& [cpu, count] : users) {
      ASSERT_TRUE(count == 1 || !own) << i << ": cpu " << cpu;
    }
    bound += own ? 1 : 0;
  }
  EXPECT_GT(bound, 200);
}

TEST(Place, NeedsNoTopologyToBindNothing) {
  PlaceRequest wanted = request(8);
  EXPECT_TRUE(needs_topology(*policy_of(wanted)));
  wanted.oversubscribe = true;
  EXPECT_FALSE(needs_topology(*policy_of(wanted)));
  EXPECT_FALSE(needs_topology(*policy_of(request(8, "", "none"))));
  EXPECT_TRUE(needs_topology(*policy_of(request(8, "ppr:2:package", "none"))));
}

}  // namespace
}  // namespace regroup::placement
