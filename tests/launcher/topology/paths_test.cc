// Paths and their classes on machines small enough to know by heart, and the tree between hosts.
#include "launcher/topology/paths.h"

#include <gmock/gmock.h>

#include <fmt/format.h>

#include "launcher/topology/fabric.h"
#include "launcher/topology/machine_text.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Machine machine(std::string_view text) {
  auto read = parse_machine_text(text, "test");
  EXPECT_TRUE(read.ok()) << read.status().message();
  return read.ok() ? *read : Machine();
}

std::string brief(const Path& path) {
  return fmt::format("{} {:.4g} over {}", path_class_name(path.cls), path.gbytes, path.hops.size());
}

TEST(Paths, TheHybridCubeMeshHasNvlinkDirectlyOrThroughOneGpu) {
  auto text = read_text_file("tests/machines/dgx-1v.topo");
  ASSERT_TRUE(text.ok());
  const Machine dgx1 = machine(*text);
  EXPECT_EQ(brief(dgx1.path(0, 3)), "NVL 40 over 1");
  EXPECT_EQ(brief(dgx1.path(0, 2)), "NVL 20 over 1");
  EXPECT_EQ(brief(dgx1.path(0, 7)),
            "NVB 40 over 2");  // through 3: two links each; through 4 as well
  EXPECT_EQ(brief(dgx1.path(0, 5)),
            "NVB 20 over 2");  // through 1 or 4: one of the two links is single
  EXPECT_EQ(brief(dgx1.path(dgx1.gpu_end(2), dgx1.nic_end(1))), "PIX 12 over 2");
  EXPECT_EQ(brief(dgx1.path(dgx1.gpu_end(0), dgx1.nic_end(1))), "PXN 12 over 3");
  EXPECT_EQ(brief(dgx1.path(dgx1.gpu_end(1), dgx1.nic_end(3))), "SYS 6 over 5");
}

TEST(Paths, NamesTheLinksBothWays) {
  const Machine two = machine("numa 0\nswitch s at=numa:0\ngpu 0 at=s\nnic n at=s speed=40\n");
  const Path &to = two.path(two.gpu_end(0), two.nic_end(0)),
             &back = two.path(two.nic_end(0), two.gpu_end(0));
  EXPECT_EQ(brief(to), "PIX 5 over 2") << "40 Gb/s of wire are the narrowest part";
  EXPECT_THAT(to.hops, ElementsAre(Hop{1, true}, Hop{2, false}));
  EXPECT_THAT(back.hops, ElementsAre(Hop{2, true}, Hop{1, false}));
}

TEST(Paths, PciClassesFollowTheSwitchesAndTheProcessors) {
  const Machine pci = machine(
      "cpu intel sys=10\nnuma 0\nnuma 1\nswitch top at=numa:0\nswitch a at=top\nswitch b at=top\n"
      "gpu 0,1 at=a\ngpu 2 at=b\ngpu 3 at=numa:0 gen=4\ngpu 4 at=numa:1\ncard c at=numa:1 gen=4\n"
      "nic p1 at=c speed=100\nnic p2 at=c speed=100 port=2\n");
  EXPECT_EQ(brief(pci.path(0, 1)), "PIX 12 over 2");
  EXPECT_EQ(brief(pci.path(0, 2)), "PXB 12 over 4");
  EXPECT_EQ(brief(pci.path(0, 3)), "PHB 10 over 4");
  EXPECT_EQ(brief(pci.path(0, 4)), "SYS 8.333 over 5");
  EXPECT_EQ(brief(pci.path(pci.gpu_end(4), pci.nic_end(1))), "PHB 12 over 3");
  EXPECT_EQ(brief(pci.path(pci.nic_end(0), pci.nic_end(1))), "LOC 12 over 2");
  EXPECT_EQ(pci.gpus[2].numa, 0U);
  EXPECT_EQ(pci.nics[1].numa, 1U);
}

TEST(Paths, GraceReachesItsNicOverC2c) {
  const Machine grace = machine(
      "cpu arm sys=100\nnuma 0\nnuma 1\ngpu 0 at=numa:0 arch=sm100\ngpu 1 at=numa:1 arch=sm100\n"
      "c2c 0 numa:0 gbytes=450\nc2c 1 numa:1 gbytes=450\nnvswitch 2 gpus=0-1 links=18\n"
      "nic n at=numa:0 gen=5 speed=400\n");
  EXPECT_EQ(brief(grace.path(0, 1)), "NVL 721.8 over 2");
  EXPECT_EQ(brief(grace.path(grace.gpu_end(0), grace.nic_end(0))), "P2C 48 over 2");
  EXPECT_EQ(brief(grace.path(grace.gpu_end(0), grace.numa_end(0))), "C2C 450 over 1");
}

TEST(Paths, WhatNothingJoinsIsApart) {
  Machine apart;
  add_gpu(apart, {});
  add_gpu(apart, {});
  find_paths(apart);
  EXPECT_EQ(brief(apart.path(0, 1)), "DIS 0 over 0");
  EXPECT_EQ(apart.path(0, 0).cls, PathClass::kLoc);
}

TEST(MachineText, SaysFileAndLineOfWhatIsWrong) {
  constexpr std::pair<const char*, const char*> kBad[] = {
      {"numa 0\ngpu 0\n", "m:2: 'gpu': at=PLACE is missing"},
      {"numa 0\ngpu 0 at=s\n", "m:2: 's' is not defined above this line"},
      {"numa 0\nnuma 0\n", "m:2: 'numa:0' is defined twice"},
      {"numa 0\ngpu 0 at=numa:0\nnvlink 0 0 gbytes=1\n", "m:3: '0' is linked to itself"},
      {"numa 0\ngpu 0,1 at=numa:0\nnvlink 0 1\n", "m:3: 'nvlink': gbytes= is missing"},
      {"numa 0\ngpu 0,1 at=numa:0 arch=sm70\nnvlink 0 1\nnvlink 1 0\n",
       "m:4: 1 and 0 are linked twice"},
      {"numa 0\ngpu 0-99999 at=numa:0\n", "m:2: '0-99999': expected a GPU list"},
      {"numa 0\ngpu 0 at=numa:0 gen=9\n", "m:2: gen=9: expected a number from 1 to 7"},
      {"numa 0 colour=red\n", "m:1: 'numa': unknown setting 'colour'"},
      {"numa 0\ngpu 0 at=numa:0\ngpu 1 at=gpu:0\n", "m:3: 'gpu:0' cannot hold a device or switch"},
      {"host 0\n", "m:1: 'host': unknown word"},
      {"# nothing\n", "expected a line 'numa N'"},
      {"numa 0\nnic a at=numa:0 speed=nan\n", "m:2: speed=nan: expected a number"},
  };
  for (const auto& [text, message] : kBad) {
    const auto read = parse_machine_text(text, "m");
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_THAT(read.status().message(), HasSubstr(message)) << text;
  }
}

TEST(Fabric, FindsTheNarrowestLinkToWhereTheWaysMeet) {
  Fabric fabric;
  fabric.nodes = {{.name = "root"},
                  {.name = "left", .parent = 0, .up_gbytes = 100},
                  {.name = "right", .parent = 0, .up_gbytes = 50},
                  {.name = "rack", .kind = FabricKind::kNvlink, .host_gbytes = 700}};
  fabric.hosts = {{"a", 0, 1}, {"b", 0, 1}, {"c", 0, 2}, {"d", 0, 2, 3}, {"e", 0, 1, 3}, {"f"}};
  EXPECT_EQ(fabric_path(fabric, 0, 0).cls, PathClass::kLoc);
  EXPECT_EQ(fabric_path(fabric, 0, 1), (FabricPath{PathClass::kNet, 1, 0, {}, {}}));
  EXPECT_EQ(fabric_path(fabric, 0, 2), (FabricPath{PathClass::kNet, 0, 50, {1}, {2}}));
  EXPECT_EQ(fabric_path(fabric, 3, 4), (FabricPath{PathClass::kNvl, 3, 700, {}, {}}));
  EXPECT_EQ(fabric_path(fabric, 0, 5).cls, PathClass::kDis);
}

}  // namespace
}  // namespace regroup::topology
