// The network between hosts, as Slurm, Kubernetes and people write it.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "launcher/topology/load_fabric.h"

namespace regroup::topology {
namespace {

using testing::HasSubstr;

Fabric fabric(const std::string& text) {
  auto read = parse_fabric(text, {}, "f");
  EXPECT_TRUE(read.ok()) << read.status().message();
  return read.ok() ? *read : Fabric();
}

std::string message_of(const std::string& text) {
  const auto read = parse_fabric(text, {}, "f");
  return read.ok() ? "it was read" : read.status().message();
}

std::uint32_t host(const Fabric& fabric, const std::string& name) {
  for (std::uint32_t i = 0; i < fabric.hosts.size(); ++i) {
    if (fabric.hosts[i].name == name) return i;
  }
  ADD_FAILURE() << "no host " << name;
  return 0;
}

std::string way(const Fabric& fabric, const std::string& a, const std::string& b) {
  const FabricPath path = fabric_path(fabric, host(fabric, a), host(fabric, b));
  return fmt::format("{} at {} {:g}", path_class_name(path.cls),
                     path.meet == kNoPart ? "-" : fabric.nodes[path.meet].name, path.gbytes);
}

TEST(SlurmFabric, ReadsATree) {
  const Fabric tree = fabric(
      "# three levels\nSwitchName=s0 Nodes=n[0-1] LinkSpeed=100\nswitchname=s1 nodes=n[2-3]\n"
      "SwitchName=s2 \\\n  Nodes=n4\nSwitchName=top Switches=pair,s2\nSwitchName=pair "
      "Switches=s[0-1]\n");
  EXPECT_EQ(tree.hosts.size(), 5U);
  EXPECT_EQ(way(tree, "n0", "n1"), "NET at s0 0");
  EXPECT_EQ(way(tree, "n0", "n3"), "NET at pair 0");
  EXPECT_EQ(way(tree, "n1", "n4"), "NET at top 0");
  EXPECT_EQ(tree.nodes[0].name, "top");
  EXPECT_EQ(tree.nodes[0].level, 2U);
  for (std::uint32_t i = 0; i < tree.nodes.size(); ++i) {
    EXPECT_TRUE(tree.nodes[i].parent == kNoPart || tree.nodes[i].parent < i);
  }
}

TEST(SlurmFabric, ListsGoOnInTheNextLine) {
  for (const char* text :
       {"SwitchName=s Nodes=a[0-1],\\\nb[0-1],c\n", "SwitchName=s Nodes=a[0-1],\\\n  b[0-1],c\n",
        "SwitchName=s\\\n Nodes=a[0-1],b\\\n[0-1],c\n"})
    EXPECT_EQ(fabric(text).hosts.size(), 5U) << text;
}

TEST(SlurmFabric, DoesNotTakeAllForAHost) {
  EXPECT_EQ(message_of("SwitchName=s Nodes=n1\nSwitchName=t Nodes=ALL\n"),
            "f:2: nodes=ALL: expected names, since this file does not list all of them");
}

TEST(SlurmFabric, ReadsBlocks) {
  const Fabric blocks =
      fabric("BlockName=b1 Nodes=n[01-18]\nBlockName=b2 Nodes=n[19-36]\nBlockSizes=18,36\n");
  EXPECT_EQ(blocks.nodes.size(), 2U);
  EXPECT_EQ(blocks.nodes[1].kind, FabricKind::kBlock);
  EXPECT_EQ(way(blocks, "n01", "n18"), "NET at b1 0");
  EXPECT_EQ(way(blocks, "n01", "n19"), "DIS at - 0");
}

// `scontrol show topology` of Slurm 22.05 to 25.11, as it is copied from a terminal.
TEST(SlurmFabric, ReadsWhatScontrolPrints) {
  const char* const kFile =
      "SwitchName=s0 Nodes=n[0-1]\nSwitchName=s1 Nodes=n[2-3]\nSwitchName=top "
      "Switches=s[0-1]\n";
  const char* const kPrinted =
      "\xEF\xBB\xBF[me@login ~]$ scontrol show topology\r\n"
      "\x1b[1mSwitchName=s0\x1b[0m Level=0 LinkSpeed=1 Nodes=n[0-1]\r\n"
      "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[2-3] Switches=(null)\r\n"
      "  SwitchName=top Level=1 LinkSpeed=1 Nodes=n[0-3] Switches=s[0-1]\r\n[me@login ~]$ ";
  const Fabric printed = fabric(kPrinted);
  for (const char* other : {"n1", "n2"})
    EXPECT_EQ(way(printed, "n0", other), way(fabric(kFile), "n0", other)) << other;
  const Fabric blocks = fabric(
      "BlockName=b1 BlockIndex=0 Nodes=n[01-18] BlockSize=18\nBlockName=b2 BlockIndex=1 "
      "Nodes=n[19-36] "
      "BlockSize=18\nAggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[01-36] BlockSize=36\n");
  EXPECT_EQ(way(blocks, "n01", "n18"), "NET at b1 0");
}

TEST(Fabric, AnEmptyFileIsCalledEmpty) {
  EXPECT_EQ(message_of(" \n\n"), "f: the file is empty; expected a fabric");
}

TEST(SlurmFabric, SaysFileAndLineOfWhatIsWrong) {
  constexpr std::pair<const char*, const char*> kBad[] = {
      {"SwitchName=a Nodes=n[0-99999999]\n",
       "f:1: nodes=n[0-99999999]: expected a host list: 'n[0-99999999]': more than"},
      {"SwitchName=a Nodes=n[2-1]\n", "f:1: nodes=n[2-1]: expected a host list"},
      {"SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", "f:2: 'a' is defined twice"},
      {"\nSwitchName=a Switches=b\n", "f:2: switch 'b' below 'a' is not defined"},
      {"SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "is below itself"},
      {"SwitchName=a Nodes=n\nSwitchName=b Switches=a\nSwitchName=c Switches=a\n",
       "f:3: 'a' is below 'b' and below 'c'; expected one parent"},
      {"SwitchName=a Nodes=n\nSwitchName=b Nodes=n\n",
       "f:2: host n is at 'a' and at 'b'; expected one switch"},
      {"SwitchName=a Colour=red\n", "f:1: 'colour': unknown word of topology.conf"},
      {"SwitchName=a Nodes=x Nodes=y\n", "f:1: 'Nodes' is given twice"},
      {"SwitchName=a nonsense\n", "f:1: 'nonsense': expected KEY=VALUE"},
      {"Nodes=x\nSwitchName=a\n", "f:1: expected SwitchName= or BlockName="},
  };
  for (const auto& [text, message] : kBad)
    EXPECT_THAT(message_of(text), HasSubstr(message)) << text;
}

TEST(KubernetesFabric, ReadsLabelsOfThreeKinds) {
  const std::string node = R"({{"metadata":{{"name":"{}","labels":{{{}}}}}}})";
  const auto one = [&node](const char* name, const char* labels) {
    return fmt::format(fmt::runtime(node), name, labels);
  };
  const auto spine =
      "\"network.topology.nvidia.com/spine\":\"s1\",\"network.topology.nvidia.com/"
      "block\":\"b{}\",\"network.topology.nvidia.com/accelerator\":\"rack7\"";
  const std::string b1 = fmt::format(fmt::runtime(spine), 1),
                    b2 = fmt::format(fmt::runtime(spine), 2);
  const Fabric read = fabric(
      fmt::format("{{\"items\":[{},{},{},{},{}]}}", one("a", b1.c_str()), one("b", b2.c_str()),
                  one("c", "\"topology.kubernetes.io/zone\":\"z1\""),
                  one("d", "\"topology.kubernetes.io/zone\":\"z1\""), one("e", "\"x\":\"y\"")));
  EXPECT_EQ(way(read, "a", "b"), "NVL at nvlink:rack7 0");
  EXPECT_EQ(read.nodes[read.hosts[host(read, "a")].leaf].name, "s1/b1");
  EXPECT_EQ(way(read, "c", "d"), "NET at z1 0");
  EXPECT_EQ(way(read, "a", "c"), "DIS at - 0");
  EXPECT_EQ(read.nodes[read.hosts[host(read, "e")].leaf].name, "unlabelled");
}

TEST(KubernetesFabric, RefusesWhatIsNone) {
  EXPECT_THAT(message_of("{\"items\":[{]}"), HasSubstr("f: expected JSON"));
  EXPECT_THAT(message_of("{\"kind\":\"List\"}"), HasSubstr("f: expected \"items\""));
  EXPECT_THAT(message_of("{\"items\":[{\"metadata\":{}}]}"),
              HasSubstr("f: items[0]: metadata.name is missing"));
  EXPECT_EQ(message_of("{\"items\":[{\"metadata\":{\"name\":\"a\",\"labels\":null}}]}"),
            "it was read");
}

TEST(YamlFabric, ReadsSwitchesWithSpeedsRailsAndNvlink) {
  const Fabric read = fabric(
      "switches:\n  - {name: spine}\n  - {name: l0, parent: spine, gbytes: 200, rails: 8, hosts: "
      "'n[0-3]'}\n"
      "  - name: l1\n    parent: spine\n    gbytes: 100\n    hosts: n[4-7]\nnvlink:\n  - {name: "
      "rack, "
      "gbytes: 722, hosts: 'n[0-1,4]'}\n");
  EXPECT_EQ(way(read, "n2", "n3"), "NET at l0 0");
  EXPECT_EQ(way(read, "n2", "n5"), "NET at spine 100");
  EXPECT_EQ(way(read, "n0", "n4"), "NVL at rack 722");
  EXPECT_EQ(read.nodes[read.hosts[host(read, "n0")].leaf].rails, 8U);
}

TEST(YamlFabric, SaysFileAndLineOfWhatIsWrong) {
  constexpr std::pair<const char*, const char*> kBad[] = {
      {"switches:\n  - {name: a, gbytes: fast}\n", "f:2: gbytes: 'fast': expected a number"},
      {"switches:\n  - {hosts: n1}\n", "f:2: name is missing"},
      {"switches:\n  - {name: a, parent: b}\n", "f:2: 'b' above 'a' is not defined"},
      {"switches:\n  - {name: a, parent: a}\n", "f:2: 'a' is below itself"},
      {"switches: 3\n", "f:1: 'switches': expected a list"},
      {"racks: []\n", "f:1: 'racks': expected switches or nvlink"},
      {"switches:\n  - {name: a, hosts: [x]}\n", "f:2: 'hosts': expected a single value"},
      {"switches:\n  - {name: a\n", "f:"},
      {"nvlink:\n  - {name: a, rails: 3}\n", "f:2: 'rails': unknown setting"},
      {"hello\n", "f:1: expected 'switches:' or 'nvlink:'"},
  };
  for (const auto& [text, message] : kBad)
    EXPECT_THAT(message_of(text), HasSubstr(message)) << text;
}

TEST(YamlFabric, DeepNestingAndAliasesAreNoHarm) {
  EXPECT_NE(message_of(std::string(100'000, '[')), "it was read");
  std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c < 'z'; ++c)
    bomb += fmt::format("{}: &{} [*{},*{},*{},*{},*{},*{},*{},*{},*{}]\n", c, c, char(c - 1),
                        char(c - 1), char(c - 1), char(c - 1), char(c - 1), char(c - 1),
                        char(c - 1), char(c - 1), char(c - 1));
  EXPECT_THAT(message_of(bomb), HasSubstr("f:1: 'a': expected switches or nvlink"));
}

}  // namespace
}  // namespace regroup::topology
