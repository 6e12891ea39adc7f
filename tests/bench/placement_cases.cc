// Times placement: usage placement_cases SAMPLES. Prints "CASE NANOSECONDS" for each sample; each
// case checks its answer first and ends with 1 where it is wrong. Every sample starts from nothing:
// no PlacementScorer is kept.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "launcher/placement/device_place.h"
#include "launcher/topology/discover.h"
#include "launcher/topology/machine_text.h"

namespace {

using namespace regroup::base;
using namespace regroup::placement;
using namespace regroup::spec;
using namespace regroup::topology;

struct Case {
  std::string name;
  Fabric fabric;
  std::vector<HostShare> allocation;
  DeviceRequest request;
  double least = 0;  // GB/s that are known to be possible
};

Machine machine(const std::string& text) {
  auto out = parse_machine_text(text, "bench");
  if (out.ok()) return *out;
  fmt::print(stderr, "{}\n", out.status().message());
  std::exit(1);
}

// 16 GPUs on NVSwitches, two to a PCIe switch, 8 NICs.
Machine dgx2() {
  std::string text = "machine DGX-2\ncpu intel sys=10\nnuma 0 cpus=0-23\nnuma 1 cpus=24-47\n";
  for (int i = 0; i < 8; ++i) {
    text += fmt::format("switch p{0} at=numa:{1}\n", i, i / 4);
    text += fmt::format("gpu {}-{} at=p{} model=V100 arch=sm70 memory=32\n", 2 * i, 2 * i + 1, i);
    text += fmt::format("nic mlx5_{0} at=p{0} kind=ib speed=100\n", i);
  }
  return machine(text + "nvswitch 6 gpus=0-15 links=6\n");
}

Machine eight() {
  std::string text = "machine H8\ncpu intel sys=22\nnuma 0 cpus=0-47\nnuma 1 cpus=48-95\n";
  for (int i = 0; i < 8; ++i) {
    text += fmt::format("switch p{0} at=numa:{1} gen=5\n", i, i / 4);
    text += fmt::format("gpu {0} at=p{0} model=H100 arch=sm90 memory=80 gen=5\n", i);
    text += fmt::format("nic mlx5_{0} at=p{0} kind=ib speed=400 gen=5\n", i);
  }
  return machine(text + "nvswitch 4 gpus=0-7 links=18\n");
}

// Hosts on switches of 32, those under one root.
Fabric cluster(std::size_t hosts) {
  Fabric out;
  out.machines.push_back(eight());
  out.nodes.push_back({.name = "root", .level = 1});
  for (std::size_t i = 0; i < hosts; ++i) {
    if (i % 32 == 0) out.nodes.push_back({.name = fmt::format("leaf{}", i / 32), .parent = 0});
    out.hosts.push_back(
        {fmt::format("h{}", i), 0, static_cast<std::uint32_t>(out.nodes.size() - 1)});
  }
  return out;
}

// Others have some GPUs of every second host, so that hosts of all kinds of leftovers are there.
std::vector<HostShare> half_busy(const Fabric& fabric) {
  std::mt19937 random(1);
  std::vector<HostShare> out = whole_fabric(fabric);
  for (std::size_t i = 0; i < out.size(); i += 2) out[i].free &= random();
  return out;
}

// "": it is right.
std::string check(const Case& one, const DevicePlacement& placement) {
  if (placement.ranks.size() != one.request.sets)
    return fmt::format("{} ranks", placement.ranks.size());
  if (placement.predicted.gbytes < one.least * (1 - 1e-6))
    return fmt::format("{} GB/s, {} are possible", placement.predicted.gbytes, one.least);
  std::map<std::uint32_t, GpuSet> seen;
  for (const DeviceSlot& slot : placement.ranks) {
    const GpuSet gpu = bit_of(slot.gpus.at(0));
    if ((seen[slot.host] & gpu) != 0) return fmt::format("a GPU of host {} twice", slot.host);
    if ((one.allocation[slot.host].free & gpu) == 0)
      return fmt::format("a busy GPU of host {}", slot.host);
    seen[slot.host] |= gpu;
  }
  return "";
}

bool run(const Case& one, int samples) {
  const auto first = place_on_devices(one.fabric, one.allocation, one.request);
  const std::string wrong = first.ok() ? check(one, *first) : first.status().message();
  if (!wrong.empty()) {
    fmt::print(stderr, "{}: {}\n", one.name, wrong);
    return false;
  }
  for (int i = 0; i < samples; ++i) {
    const auto from = std::chrono::steady_clock::now();
    const auto placement = place_on_devices(one.fabric, one.allocation, one.request);
    const auto took = std::chrono::steady_clock::now() - from;
    if (!placement.ok() || placement->ranks.size() != one.request.sets) return false;
    fmt::print("{}\t{}\n", one.name, std::chrono::nanoseconds(took).count());
  }
  return true;
}

Case make(const char* name, Fabric fabric, bool busy, std::uint32_t ranks, double least) {
  Case out{name, std::move(fabric), {}, {}, least};
  out.allocation = busy ? half_busy(out.fabric) : whole_fabric(out.fabric);
  out.request.sets = ranks;
  return out;
}

// Without the cache: hwloc, sysfs and, where there is a GPU of NVIDIA, NVML.
bool run_discovery(int samples) {
  for (int i = 0; i < samples; ++i) {
    const auto from = std::chrono::steady_clock::now();
    const auto found = discover_machine({});
    const auto took = std::chrono::steady_clock::now() - from;
    if (!found.ok() || found->processors.threads.empty() || found->numas.empty()) {
      fmt::print(stderr, "discovery: {}\n",
                 found.ok() ? "no processors" : found.status().message());
      return false;
    }
    fmt::print("discovery of this machine\t{}\n", std::chrono::nanoseconds(took).count());
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const int samples = argc > 1 ? std::atoi(argv[1]) : 20;
  const double nvlinks = 6 * 20, nics = 8 * 50;  // of a V100; of a host with 8 NICs of 400 Gb/s
  const Case cases[] = {
      make("8 ranks on a DGX-2", flat_fabric(dgx2(), {"dgx2"}), false, 8, nvlinks),
      make("64 ranks on 279 x 8 GPUs, idle", cluster(279), false, 64, 0.75 * nics),
      make("64 ranks on 279 x 8 GPUs, half of the hosts busy", cluster(279), true, 64, 0.75 * nics),
      make("1024 ranks on 12500 x 8 GPUs, idle", cluster(12500), false, 1024, 0.75 * nics),
      make("1024 ranks on 12500 x 8 GPUs, half of the hosts busy", cluster(12500), true, 1024,
           0.75 * nics)};
  for (const Case& one : cases) {
    if (!run(one, samples)) return 1;
  }
  return run_discovery(samples) ? 0 : 1;
}
