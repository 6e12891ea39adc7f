// Class and bandwidth of every pair of every machine in tests/machines are
// tests/golden/machines/NAME.txt. How they were checked: its README, and reference_test.cc.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "launcher/topology/load_machine.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

std::vector<std::string> recorded() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator("tests/machines")) {
    const std::string extension = entry.path().extension();
    if (extension == ".xml" || extension == ".topo" || extension == ".smi")
      out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string end_name(const Machine& machine, std::size_t end) {
  if (end < machine.gpus.size()) return fmt::format("gpu{}", machine.gpus[end].number);
  end -= machine.gpus.size();
  if (end < machine.nics.size()) return machine.nics[end].name;
  return fmt::format("numa{}", machine.numas[end - machine.nics.size()].number);
}

std::string golden_text(const Machine& machine) {
  std::string out = fmt::format("machine {}, processors {}\n", machine.name, machine.vendor);
  for (const Gpu& gpu : machine.gpus)
    out += fmt::format("gpu {} {} '{}' {} numa {}\n", gpu.number, gpu.bus_id, gpu.product, gpu.arch,
                       gpu.numa == kNoPart ? -1 : machine.numas[gpu.numa].number);
  for (const Nic& nic : machine.nics)
    out +=
        fmt::format("nic {} {} {} {} Gb/s numa {}\n", nic.name, nic.bus_id, nic_kind_name(nic.kind),
                    nic.gbits, nic.numa == kNoPart ? -1 : machine.numas[nic.numa].number);
  for (const std::string& guess : machine.guesses) out += fmt::format("guess: {}\n", guess);
  const auto ends = static_cast<std::uint32_t>(machine.ends());
  for (std::uint32_t a = 0; a < ends; ++a) {
    for (std::uint32_t b = a + 1; b < ends; ++b) {
      const Path& path = machine.path(a, b);
      out += fmt::format("{} {} {} {:.4g} over {}\n", end_name(machine, a), end_name(machine, b),
                         path_class_name(path.cls), path.gbytes, path.hops.size());
    }
  }
  return out;
}

class Machines : public testing::TestWithParam<std::string> {};

TEST(NcclTopologyFile, IsAbsoluteWhereItIsNccls) {
  const std::string here = std::filesystem::current_path();
  for (const char* name :
       {"nccl-aws-p4d-24xl.xml", "nccl-mi250x-frontier.xml", "nccl-azure-ndv4.xml"})
    EXPECT_EQ(nccl_topology_file(std::string("tests/machines/../machines/") + name),
              here + "/tests/machines/" + name);
  for (const char* name : {"hwloc-dgx2.xml", "dgx-1v.topo", "not-there.xml"})
    EXPECT_EQ(nccl_topology_file(std::string("tests/machines/") + name), "") << name;
  EXPECT_EQ(nccl_topology_file(""), "");
}

TEST_P(Machines, EveryPairIsAsInTheGoldenFile) {
  const auto machine = load_machine(GetParam());
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  const std::filesystem::path golden = std::filesystem::path("tests/golden/machines") /
                                       (std::filesystem::path(GetParam()).stem().string() + ".txt");
  const auto wanted = read_text_file(golden);
  const std::string got = golden_text(*machine);
  if (wanted.ok() && *wanted == got) return;
  const std::filesystem::path now = std::filesystem::temp_directory_path() / golden.filename();
  std::ofstream(now) << got;
  FAIL() << golden << " differs from what is read now, which lies in " << now;
}

TEST_P(Machines, PathsAreTheSameBothWaysAndMadeOfLinksThatMeet) {
  const auto machine = load_machine(GetParam());
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  const auto ends = static_cast<std::uint32_t>(machine->ends());
  for (std::uint32_t a = 0; a < ends; ++a) {
    for (std::uint32_t b = 0; b < ends; ++b) {
      const Path &there = machine->path(a, b), &back = machine->path(b, a);
      EXPECT_EQ(there.cls, back.cls);
      EXPECT_EQ(there.gbytes, back.gbytes);
      ASSERT_EQ(there.hops.size(), back.hops.size());
      EXPECT_EQ(a == b, there.cls == PathClass::kLoc && there.hops.empty());
      for (std::size_t i = 0; i + 1 < there.hops.size(); ++i) {
        const Link &one = machine->links[there.hops[i].link],
                   &next = machine->links[there.hops[i + 1].link];
        EXPECT_EQ(there.hops[i].forward ? one.b : one.a,
                  there.hops[i + 1].forward ? next.a : next.b);
      }
      for (const Hop& hop : there.hops) EXPECT_LE(there.gbytes, machine->links[hop.link].gbytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, Machines, testing::ValuesIn(recorded()), [](const auto& info) {
  std::string name = std::filesystem::path(info.param).stem();
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace regroup::topology
