// Machines read by the real hwloc: synthetic, recorded, and this one.
#include "launcher/topology/topology.h"

#include <gmock/gmock.h>
#include <sched.h>

#include <fstream>
#include <sstream>

#include "launcher/topology/read_topology.h"

namespace regroup::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string file_text(const std::string& path) {
  std::stringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

Topology recorded(const std::string& name) {
  auto topology = parse_hwloc_xml(file_text("tests/golden/placement/" + name + ".xml"));
  EXPECT_TRUE(topology.ok()) << topology.status().message();
  return topology.ok() ? *topology : Topology();
}

TEST(Topology, ReadsASyntheticMachine) {
  auto read = synthetic_topology("package:2 [numa] l3:1 l2:4 l1:1 core:1 pu:2");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->threads.size(), 16U);
  EXPECT_EQ(parts_of(*read, spec::Unit::kPackage).size(), 2U);
  EXPECT_EQ(parts_of(*read, spec::Unit::kL3Cache).size(), 2U);
  EXPECT_THAT(parts_of(*read, spec::Unit::kCore).at(7), ElementsAre(14, 15));
  EXPECT_EQ(parts_of(*read, spec::Unit::kNuma).at(1).size(), 8U);
  EXPECT_EQ(parts_of(*read, spec::Unit::kNode).size(), 1U);
  EXPECT_FALSE(read->this_machine);
}

TEST(Topology, AMachineThatTellsNothingApartHasOnePackageAndACorePerThread) {
  auto read = synthetic_topology("pu:3");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(parts_of(*read, spec::Unit::kCore).size(), 3U);
  EXPECT_EQ(parts_of(*read, spec::Unit::kPackage).size(), 1U);
  EXPECT_TRUE(parts_of(*read, spec::Unit::kL2Cache).empty());
}

TEST(Topology, ReadsRecordedMachinesWithTheirOperatingSystemNumbers) {
  const Topology power8 = recorded("power8");
  ASSERT_EQ(power8.threads.size(), 16U);
  EXPECT_THAT(os_numbers(power8, parts_of(power8, spec::Unit::kCore).at(1)), ElementsAre(8, 9));
  EXPECT_EQ(power8.numa_bytes.size(), 2U);
  const Topology dgx2 = recorded("dgx2");
  EXPECT_THAT(os_numbers(dgx2, parts_of(dgx2, spec::Unit::kPackage).at(1)), ElementsAre(24, 25));
  EXPECT_THAT(dgx2.model, HasSubstr("Intel"));
}

TEST(Topology, ReadsTheProcessorsOfAnXmlOfHwloc3) {
  std::string text = file_text("tests/golden/placement/numa.xml");
  text.replace(text.find("version=\"2.0\""), 13, "version=\"3.0\"");
  auto read = parse_hwloc_xml(text);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, recorded("numa"));
}

TEST(Topology, SaysWhatItCannotRead) {
  for (const char* text :
       {"", "<topology", "<topology version=\"2.0\"></topology>", "no xml at all"}) {
    auto read = parse_hwloc_xml(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.code(), base::Code::kInvalidArgument);
  }
  auto synthetic = synthetic_topology("package:2 nonsense:3");
  ASSERT_FALSE(synthetic.ok());
  EXPECT_THAT(synthetic.status().message(), HasSubstr("package:2 nonsense:3"));
}

TEST(Topology, ThisMachineHasTheProcessorsOfTheAffinityMask) {
  auto read = read_this_machine("this machine");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(read->this_machine);
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    EXPECT_EQ(restricted(*read, {cpu}).threads.size(), 1U) << cpu;
  }
  for (const HwThread& thread : read->threads) EXPECT_NE(thread.part(spec::Unit::kCore), kNoPart);
}

TEST(Topology, RestrictedKeepsTheNumbers) {
  const Topology left = restricted(recorded("packages"), {2, 3, 8, 9, 77});
  ASSERT_EQ(left.threads.size(), 4U);
  EXPECT_EQ(left.threads[0].part(spec::Unit::kCore), 1U);
  EXPECT_EQ(left.threads[2].part(spec::Unit::kPackage), 1U);
  EXPECT_EQ(parts_of(left, spec::Unit::kPackage).size(), 2U);
  EXPECT_TRUE(restricted(left, {}).threads.empty());
}

TEST(Topology, RangesAreShort) {
  EXPECT_EQ(ranges({}), "");
  EXPECT_EQ(ranges({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

TEST(Topology, IsDescribedForPeople) {
  EXPECT_EQ(describe(recorded("numa"), "h"),
            "host h: 2 packages, 4 NUMA nodes, 8 cores, 16 hardware threads\n"
            "  package 0\n"
            "    NUMA node 0\n"
            "      L3 0, 16 MiB: cores 0-1 (processors 0-3)\n"
            "    NUMA node 1\n"
            "      L3 1, 16 MiB: cores 2-3 (processors 4-7)\n"
            "  package 1\n"
            "    NUMA node 2\n"
            "      L3 2, 16 MiB: cores 4-5 (processors 8-11)\n"
            "    NUMA node 3\n"
            "      L3 3, 16 MiB: cores 6-7 (processors 12-15)\n"
            "  each core: L1 32 KiB, L2 4 MiB\n");
}

}  // namespace
}  // namespace regroup::topology
