// Layouts of `nvidia-smi topo -m` as they are found in public reports, with numbers of our own:
// what the columns behind the devices mean for NUMA nodes, and what a text goes through before it
// is read.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <regex>

#include "launcher/topology/load_machine.h"

namespace regroup::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kTitles = "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID";

// A matrix of GPUs that are all joined by `link`, each with what stands behind its cells.
std::string matrix(const std::vector<std::string>& behind, const std::string& link = "NV12",
                   const std::string& titles = kTitles) {
  std::string out;
  for (std::size_t i = 0; i < behind.size(); ++i) out += fmt::format("\tGPU{}", i);
  out += titles + "\n";
  for (std::size_t i = 0; i < behind.size(); ++i) {
    out += fmt::format("GPU{}", i);
    for (std::size_t j = 0; j < behind.size(); ++j) out += i == j ? "\t X " : "\t" + link;
    out += (behind[i].empty() ? "" : "\t") + behind[i] + "\n";
  }
  return out;
}

base::Result<Machine> read(const std::string& text) { return parse_machine(text, "f"); }

// "0: 0 1 | 1: 2 3", NUMA nodes with their GPUs; or the refusal.
std::string numas(const std::string& text) {
  const auto machine = read(text);
  if (!machine.ok()) return machine.status().message();
  std::string out;
  for (std::uint32_t numa = 0; numa < machine->numas.size(); ++numa) {
    out += fmt::format("{}{}:", numa == 0 ? "" : " | ", machine->numas[numa].number);
    for (const Gpu& gpu : machine->gpus) {
      if (gpu.numa == numa) out += fmt::format(" {}", gpu.number);
    }
  }
  return out;
}

TEST(NvidiaSmi, NumaNodesFollowTheProcessorsOfRows) {
  const struct {
    std::vector<std::string> behind;
    const char* expected;
  } kCases[] = {
      // Lists of 8 characters and more, and shorter ones, behind which a second tab stands.
      {{"0-31,64-95\t0\t\tN/A", "0-31,64-95\t0\t\tN/A", "32-63,96-127\t1\t\tN/A"}, "0: 0 1 | 1: 2"},
      {{"0-5\t\t0\t\tN/A", "0-5\t\t0\t\tN/A", "6-11\t\t1\t\tN/A"}, "0: 0 1 | 1: 2"},
      {{"0-5\t0\tN/A", "6-11\t1\tN/A"}, "0: 0 | 1: 1"},
      // A virtual machine does not tell nodes, or tells all of them.
      {{"0-63\tN/A\t\tN/A", "0-63\tN/A\t\tN/A"}, "0: 0 1"},
      {{"0-23\tN/A\t\tN/A", "24-47\tN/A\t\tN/A"}, "0: 0 | 1: 1"},
      {{"0-23\t0-1\t\tN/A", "24-47\t0-1\t\tN/A"}, "0: 0 | 1: 1"},
      {{"0-47\t0-1\t\tN/A", "0-47\t0-1\t\tN/A"}, "0: 0 1"},
      // The lists of Grace name nodes that are memory of a GPU; GPU NUMA ID is one of these.
      {{"0-71\t0,3-9\t\t2", "0-71\t0,3-9\t\t10", "72-143\t1,19-25\t\t18"}, "0: 0 1 | 1: 2"},
      {{"0-71\t\t0\t\t1"}, "0: 0"},
      // Same processors, one node, whatever the column says; and numbers that leave gaps.
      {{"0-15\t0\t\tN/A", "0-15\t1\t\tN/A"}, "0: 0 1"},
      {{"48-63\t3\t\tN/A", "16-31\t1\t\tN/A"}, "1: 1 | 3: 0"},
      // A device that is near to two nodes is at one of them.
      {{"0-47\t0-1\t\tN/A", "0-23\t0\t\tN/A", "24-47\t1\t\tN/A"}, "0: 0 1 | 1: 2"},
      {{"0-47\t1\t\tN/A", "0-23\t0\t\tN/A", "24-47\t1\t\tN/A"}, "0: 1 | 1: 0 2"},
      // No processors: the number counts; neither: nothing says that they are apart.
      {{"N/A\t0\t\tN/A", "N/A\t1\t\tN/A", "N/A\t1\t\tN/A"}, "0: 0 | 1: 1 2"},
      {{"N/A\tN/A\tN/A", "N/A\tN/A\tN/A"}, "0: 0 1"},
      {{"", ""}, "0: 0 1"},
      {{"0-7\t0\t\tN/A", ""}, "0: 0 1"},
  };
  for (const auto& [behind, expected] : kCases)
    EXPECT_EQ(numas(matrix(behind)), expected) << behind[0];
}

TEST(NvidiaSmi, ColumnsAreKnownByTheirTitles) {
  EXPECT_EQ(numas(matrix({"0-9", "10-19"}, "NV2", "\tCPU Affinity")),
            "0: 0 | 1: 1");  // of old drivers
  EXPECT_EQ(numas(matrix({"0-9\t4", "10-19\t5"}, "NV2", "\tCPU Affinity\tNUMA")), "4: 0 | 5: 1");
  EXPECT_EQ(numas(matrix({"0-9", "10-19"}, "NV2", "")), "0: 0 | 1: 1");
  EXPECT_EQ(numas(matrix({"0\t0-9", "1\t10-19"}, "NV2", "\tNUMA Affinity\tCPU Affinity")),
            "0: 0 | 1: 1");
  // A column without a word in it: what stands there tells which.
  EXPECT_EQ(numas(matrix({"\t\t7\t\tN/A", "\t\t8\t\tN/A"})), "7: 0 | 8: 1");
  EXPECT_EQ(numas(matrix({"0-9,\t20-29\t0", "10-19\t1"}, "NV2", "\tCPU Affinity\tNUMA Affinity")),
            "0: 0 | 1: 1");
}

TEST(NvidiaSmi, SysSaysThatDevicesWithoutProcessorsAreApart) {
  EXPECT_EQ(numas(matrix({"", ""}, "SYS")), "0: 0 | 1: 1");
  EXPECT_EQ(numas(matrix({"N/A\t0", ""}, "SYS")), "0: 0 | 1: 1");
  EXPECT_EQ(numas(matrix({"0-7", ""}, "PHB", "\tCPU Affinity")), "0: 0 1");
}

TEST(NvidiaSmi, SysAtOneNodeIsTakenForPhb) {
  const auto machine = read(matrix({"0-55,112-167\t0\t\tN/A", "0-55,112-167\t0\t\tN/A"}, "SYS"));
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  EXPECT_EQ(machine->path(0, 1).cls, PathClass::kPhb);
  EXPECT_THAT(machine->guesses,
              testing::Contains(HasSubstr("GPU1 to GPU0 is SYS, but both are at NUMA node 0")));
}

TEST(NvidiaSmi, PhbBetweenNodesIsTakenForSys) {
  for (const char* cell : {"PHB", "NODE"}) {
    const auto machine = read(matrix({"0-11", "12-23"}, cell, "\tCPU Affinity"));
    ASSERT_TRUE(machine.ok()) << machine.status().message();
    EXPECT_EQ(machine->numas.size(), 2);
    EXPECT_EQ(machine->path(0, 1).cls, PathClass::kSys);
    EXPECT_THAT(machine->guesses,
                testing::Contains(HasSubstr("they are at NUMA nodes 1 and 0: assuming SYS")));
  }
}

TEST(NvidiaSmi, TheProcessorsOfANodeAreThoseOfItsRows) {
  const auto machine = read(matrix({"0-2\t\t0-1\t\tN/A", "0-1\t\t0\t\tN/A", "2,8\t\t1\t\tN/A"}));
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  EXPECT_THAT(machine->numas[0].cpus, ElementsAre(0, 1));
  EXPECT_THAT(machine->numas[1].cpus, ElementsAre(2, 8));
}

const char* const kRecorded =
    "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV4\tPXB\tSYS\t0-7\t0\t\tN/A\n"
    "GPU1\tNV4\t X \tSYS\tPIX\t8-15\t1\t\tN/A\n"
    "NIC0\tPXB\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC1\tSYS\tPIX\tSYS\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: rocep9s0f1\n\n";

std::string expanded(const std::string& text) {
  std::string out;
  std::size_t column = 0;
  for (const char c : text) {
    if (c == '\t') {
      do out += ' ';
      while (++column % 8 != 0);
      continue;
    }
    out += c;
    column = c == '\n' ? 0 : column + 1;
  }
  return out;
}

std::string each_line(const std::string& text, const std::string& before,
                      const std::string& after) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += before + text.substr(at, end - at) + after + "\n";
    at = end + 1;
  }
  return out;
}

TEST(NvidiaSmi, ReadsTheTextHoweverItHasTravelled) {
  const auto want = read(kRecorded);
  ASSERT_TRUE(want.ok()) << want.status().message();
  EXPECT_EQ(want->nics.at(1).name, "rocep9s0f1");
  EXPECT_EQ(want->numas.size(), 2U);
  const std::string tabs = kRecorded, blanks = expanded(tabs);
  const std::string second = "\tGPU0\tGPU1\nGPU0\tX\tGNS\nGPU1\tGNS\tX\n";  // of topo -p2p
  const struct {
    const char* what;
    std::string text;
  } kTexts[] = {
      {"blanks", blanks},
      {"single blanks", std::regex_replace(blanks, std::regex(" +"), " ")},
      {"indented", each_line(blanks, "    ", "")},
      {"indented tabs", each_line(tabs, "  ", "")},
      {"trailing blanks", each_line(tabs, "", " \t ")},
      {"returns", each_line(tabs, "", "\r")},
      {"mail", each_line(blanks, "> ", "")},
      {"prompt", "\x1b]0;user@node\auser@node:~$ nvidia-smi topo -m\n" + tabs + "user@node:~$ \n"},
      {"other output", "| 0  NVIDIA H100 On | 00000000:1B:00.0 Off |\n+----+\n\n" + tabs + second},
      {"fenced", "```\n" + tabs + "```\n"},
      {"byte order mark", "\xef\xbb\xbf" + tabs},
      {"no-break blanks", std::regex_replace(blanks, std::regex("  "), "\xc2\xa0\xc2\xa0")},
      {"underlined", "\t\x1b[4mGPU0" + tabs.substr(5, tabs.find('\n') - 5) + "\x1b[0m" +
                         tabs.substr(tabs.find('\n'))},
      {"coloured", each_line(tabs, "\x1b[1;32m", "\x1b[m\x1b(B")},
      {"overstruck", "\t_\bG_\bP_\bU_\b0" + tabs.substr(5)},
      {"no legend", tabs.substr(0, tabs.find("\nLegend"))},
  };
  for (const auto& [what, text] : kTexts) {
    const auto got = read(text);
    ASSERT_TRUE(got.ok()) << what << ": " << got.status().message();
    EXPECT_EQ(got->numas, want->numas) << what;
    EXPECT_EQ(got->gpus, want->gpus) << what;
    EXPECT_EQ(got->paths, want->paths) << what;
    EXPECT_EQ(got->nics == want->nics, std::string_view(what) != "no legend") << what;
  }
}

TEST(NvidiaSmi, OlderDriversNameNicsThemselves) {
  const auto machine = read(
      "\tGPU0\tmlx4_0\thfi1_0\tCPU Affinity\nGPU0\t X \tPHB\tPIX\t0-7\nmlx4_0\tPHB\t X "
      "\tPHB\nhfi1_0\tPIX\tPHB\t X \n");
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  ASSERT_EQ(machine->nics.size(), 2U);
  EXPECT_EQ(machine->nics[1].name, "hfi1_0");
}

TEST(NvidiaSmi, ALoneGpuIsAMachine) {
  EXPECT_EQ(numas("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-19\t0\t\tN/A\n"),
            "0: 0");
  EXPECT_EQ(numas("GPU0 CPU Affinity NUMA Affinity GPU NUMA ID\nGPU0 X 0-19 0 N/A"), "0: 0");
}

TEST(NvidiaSmi, WhatIsNotUnderstoodIsSaid) {
  const auto machine = read(matrix({"0-7,lots\t0\t\tN/A"}));
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  EXPECT_THAT(machine->guesses,
              testing::Contains("GPU0: '0-7,lots': expected a list of processors; ignored"));
  EXPECT_THAT(numas(std::string(kRecorded) + matrix({"0-7", "0-7", "0-7", "0-7"}, "PIX")),
              HasSubstr("a second matrix; expected one machine in a file"));
  EXPECT_THAT(numas("\tGPU0\tGPU1\n"), HasSubstr("expected a row of a GPU"));
}

// Text that only resembles the matrix is parsed as the small language.
TEST(NvidiaSmi, ACommentWithAMatrixIsAComment) {
  EXPECT_EQ(numas("# GPU0 GPU1\n# GPU0 X PIX\nnuma 0 cpus=0-3\ngpu 0 at=numa:0\n"), "0: 0");
}

}  // namespace
}  // namespace regroup::topology
