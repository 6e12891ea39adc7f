// Machines for tests of placement: those of tests/machines, and invented ones.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "launcher/placement/device_place.h"
#include "launcher/topology/machine_text.h"

namespace regroup::placement {

inline topology::Machine machine_of_text(const std::string& text,
                                         const std::string& source = "test") {
  auto machine = topology::parse_machine_text(text, source);
  EXPECT_TRUE(machine.ok()) << machine.status().message();
  return machine.ok() ? *machine : topology::Machine();
}

inline topology::Machine dgx_1v() {
  std::ifstream file("tests/machines/dgx-1v.topo");
  return machine_of_text({std::istreambuf_iterator<char>(file), {}}, "dgx-1v.topo");
}

// One link of 18 GB/s between each two that are joined: placement.md of the design,
// go-gpuallocator.
inline topology::Machine dgx_1p() {
  std::string text =
      "machine DGX-1P\ncpu intel sys=6\nnuma 0 cpus=0-19\nnuma 1 cpus=20-39\nswitch p0 "
      "at=numa:0\nswitch p1 "
      "at=numa:0\n"
      "switch p2 at=numa:1\nswitch p3 at=numa:1\n";
  for (const char* gpu :
       {"0 at=p0", "1 at=p1", "2 at=p0", "3 at=p1", "4 at=p2", "5 at=p3", "6 at=p2", "7 at=p3"})
    text += std::string("gpu ") + gpu + " model=P100 arch=sm60 memory=16\n";
  for (const char* pair : {"0 1", "0 2", "0 3", "0 4", "1 2", "1 3", "1 5", "2 3", "2 6", "3 7",
                           "4 5", "4 6", "4 7", "5 6", "5 7", "6 7"})
    text += std::string("nvlink ") + pair + "\n";
  return machine_of_text(text);
}

// A node of the measurements in placement.md of the design: 4 PCIe GPUs, 0.6 GB/s to other nodes.
inline topology::Machine pcie_node() {
  return machine_of_text(
      "machine node\ncpu intel\nnuma 0 cpus=0-15\nnuma 1 cpus=16-31\ngpu 0-1 at=numa:0 model=T "
      "arch=sm75 "
      "memory=16\n"
      "gpu 2-3 at=numa:1 model=T arch=sm75 memory=16\nnic eth0 at=numa:0 kind=ethernet "
      "speed=4.8\n");
}

inline std::vector<std::string> host_names(std::size_t count) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back("h" + std::to_string(i));
  return out;
}

inline topology::Fabric one_host(const topology::Machine& machine) {
  return topology::flat_fabric(machine, {"host"});
}

inline GpuSet set_of(std::initializer_list<int> gpus) {
  GpuSet out = 0;
  for (const int gpu : gpus) out |= bit_of(static_cast<std::size_t>(gpu));
  return out;
}

// The GPUs in use, by host.
inline std::map<std::uint32_t, GpuSet> taken(const DevicePlacement& placement) {
  std::map<std::uint32_t, GpuSet> out;
  for (const DeviceSlot& slot : placement.ranks) {
    for (const std::uint32_t gpu : slot.gpus) out[slot.host] |= bit_of(gpu);
  }
  return out;
}

}  // namespace regroup::placement
