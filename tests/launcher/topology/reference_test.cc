// The table of reference machines of the design page, written down a second time and apart from the
// files: each pair's class and bandwidth in the golden files must be what the table says.
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <sstream>

#include "launcher/topology/load_machine.h"

namespace regroup::topology {
namespace {

using Pair = std::pair<int, int>;
using Links = std::map<Pair, int>;

// "01 2a": a pair of GPUs in hexadecimal digits each.
void add(Links& links, const std::string& pairs, int count) {
  std::istringstream in(pairs);
  for (std::string pair; in >> pair;) {
    const auto digit = [](char c) { return std::stoi(std::string(1, c), nullptr, 16); };
    links[std::minmax({digit(pair[0]), digit(pair[1])})] = count;
  }
}

Machine reference_machine(const std::string& name) {
  auto out = load_machine("tests/machines/" + name);
  EXPECT_TRUE(out.ok()) << out.status().message();
  return out.ok() ? *out : Machine();
}

// NVLink (xGMI) where the table lists a pair and nowhere else.
void expect_links(const std::string& name, const Links& links, double gbytes_of_one) {
  const Machine here = reference_machine(name);
  ASSERT_EQ(here.gpus.size(), 8U);
  for (int a = 0; a < 8; ++a) {
    for (int b = a + 1; b < 8; ++b) {
      const Path& path = here.path(here.gpu_end(static_cast<std::size_t>(a)),
                                   here.gpu_end(static_cast<std::size_t>(b)));
      const auto at = links.find({a, b});
      EXPECT_EQ(path.cls == PathClass::kNvl, at != links.end())
          << name << ": " << a << " and " << b;
      if (at == links.end()) continue;
      EXPECT_NEAR(path.gbytes, at->second * gbytes_of_one, 1e-9)
          << name << ": " << a << " and " << b;
    }
  }
}

TEST(ReferenceTable, LinksOfEachPair) {
  Links p, v, mi250x;
  add(p, "01 02 03 04 12 13 15 23 26 37 45 46 47 56 57 67", 1);
  expect_links("dgx-1p.topo", p, 18);
  add(v, "03 04 12 15 23 47 56 67", 2);
  add(v, "01 02 13 26 37 45 46 57", 1);
  expect_links("dgx-1v.topo", v, 20);
  add(mi250x, "01 23 45 67", 4);
  add(mi250x, "06 24", 2);
  add(mi250x, "02 13 15 37 46 57", 1);
  expect_links("nccl-mi250x-frontier.xml", mi250x, 36);
}

struct Whole {
  const char* name;
  std::size_t gpus;
  double gbytes;      // each pair, over NVLink
  PathClass nearest;  // of a GPU's nearest NIC
  std::size_t nics_near;
};

TEST(ReferenceTable, MachinesInWhichAllPairsAreAlike) {
  const Whole all[] = {
      {"hwloc-dgx2.xml", 16, 6 * 20.0, PathClass::kDis, 0},  // the file names no NIC
      {"a100x8.topo", 8, 12 * 20.0, PathClass::kPix, 2},
      {"h100x8.topo", 8, 18 * 20.6, PathClass::kPix, 1},
      {"nccl-azure-ndv4.xml", 8, 12 * 20.0, PathClass::kPix, 2},
      {"nccl-aws-p4d-24xl.xml", 8, 12 * 20.0, PathClass::kPix, 1},
      {"nccl-azure-ndv5.xml", 8, 18 * 20.6, PathClass::kPix, 1},
      {"nccl-mi300x.xml", 8, 48, PathClass::kPxb, 1},
      {"gb200-tray.topo", 4, 18 * 40.1, PathClass::kDis, 0}};
  for (const Whole& one : all) {
    const Machine here = reference_machine(one.name);
    ASSERT_EQ(here.gpus.size(), one.gpus) << one.name;
    for (std::size_t a = 0; a < one.gpus; ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        const Path& path = here.path(here.gpu_end(a), here.gpu_end(b));
        EXPECT_EQ(path.cls, PathClass::kNvl) << one.name;
        EXPECT_NEAR(path.gbytes, one.gbytes, 1e-9) << one.name;
      }
      if (one.nearest == PathClass::kDis) continue;
      std::size_t near = 0;
      for (std::size_t nic = 0; nic < here.nics.size(); ++nic)
        near += here.path(here.gpu_end(a), here.nic_end(nic)).cls == one.nearest ? 1 : 0;
      EXPECT_EQ(near, one.nics_near) << one.name << ": GPU " << a;
    }
  }
}

// Two sockets of so many GPUs each, joined inside a socket only.
TEST(ReferenceTable, PowerMachinesHaveTwoIslands) {
  const std::tuple<const char*, std::size_t, double> all[] = {
      {"hwloc-power8-p100.xml", 2, 2 * 18.0}, {"summit.topo", 3, 2 * 20.0}};
  for (const auto& [name, each, gbytes] : all) {
    const Machine here = reference_machine(name);
    ASSERT_EQ(here.gpus.size(), 2 * each) << name;
    for (std::size_t a = 0; a < 2 * each; ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        const Path& path = here.path(here.gpu_end(a), here.gpu_end(b));
        const bool same = a / each == b / each;
        EXPECT_EQ(path.cls, same ? PathClass::kNvl : PathClass::kSys) << name;
        if (!same) continue;
        EXPECT_NEAR(path.gbytes, gbytes, 1e-9) << name;
      }
    }
  }
}

TEST(ReferenceTable, MachinesOfPcieOnly) {
  const Machine pcie = reference_machine("nccl-pcie-8gpu.xml");
  for (std::size_t a = 0; a < 8; ++a) {
    for (std::size_t b = 0; b < a; ++b)
      EXPECT_EQ(pcie.path(pcie.gpu_end(a), pcie.gpu_end(b)).cls,
                a / 4 == b / 4 ? PathClass::kPxb : PathClass::kPhb);
  }
  const Machine ncv4 = reference_machine("nccl-azure-ncv4.xml");  // one GPU for each NUMA node
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::size_t b = 0; b < a; ++b)
      EXPECT_EQ(ncv4.path(ncv4.gpu_end(a), ncv4.gpu_end(b)).cls, PathClass::kSys);
  }
}

}  // namespace
}  // namespace regroup::topology
