// Class and bandwidth of every pair of every machine in tests/machines are tests/golden/machines/NAME.txt.
// They were checked by hand once against the table of reference machines of the design page and the data
// sheets:
//   dgx-1v, dgx-1p   each pair's NVLinks, 40/20 and 18 GB/s by NCCL's model; PIX pairs share a NIC;
//                    without a link one GPU between (NVB), never SYS
//   hwloc-dgx2       16 GPUs, 12 switches, 6 links each: NVL 120 for all 120 pairs; its file names no NIC
//   power8-p100      0-1 and 2-3 NVL 36 (two links of 18), across sockets SYS 32; 2 links to the processor
//   ndv4, p4d        12 links each: NVL 240 for all pairs; ndv4 PIX to 2 NICs, p4d PIX to 1 of 100 Gb/s
//   ndv5, h100x8     18 links each: NVL 370.8; one NIC of 400 Gb/s in PIX at 48 (PCIe generation 5)
//   mi250x           4 links 01 23 45 67 = 144, 2 links 06 24 = 72, 1 link 02 13 15 37 46 57 = 36; others NVB
//   mi300x           full mesh, 48 each; NIC behind three levels of switches, PXB
//   pcie-8gpu        4 GPUs PXB below each of two switches (generation 3), PHB 10 between them; one NIC
//   g5, ncv4         PCIe only: PHB inside a NUMA node, SYS across
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "launcher/topo/load_machine.h"
#include "launcher/topo/text_input.h"

namespace regroup::launcher {
namespace {

std::vector<std::string> recorded() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator("tests/machines")) {
    const std::string extension = entry.path().extension();
    if (extension == ".xml" || extension == ".topo" || extension == ".smi") out.push_back(entry.path());
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
    out += fmt::format("nic {} {} {} {} Gb/s numa {}\n", nic.name, nic.bus_id, nic_kind_name(nic.kind),
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
        const Link &one = machine->links[there.hops[i].link], &next = machine->links[there.hops[i + 1].link];
        EXPECT_EQ(there.hops[i].forward ? one.b : one.a, there.hops[i + 1].forward ? next.a : next.b);
      }
      for (const Hop& hop : there.hops) EXPECT_LE(there.gbytes, machine->links[hop.link].gbytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, Machines, testing::ValuesIn(recorded()), [](const auto& info) {
  std::string name = std::filesystem::path(info.param).stem();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace regroup::launcher
