// Merges NVML and sysfs: numbers, names and links of GPUs are NVML's; their places on PCIe are
// sysfs's.
#include "launcher/topology/discover.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/crc32c.h"
#include "launcher/topology/device_state.h"
#include "launcher/topology/machine_builder.h"
#include "launcher/topology/machine_cache.h"
#include "launcher/topology/nvml.h"
#include "launcher/topology/paths.h"
#include "launcher/topology/read_topology.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

// A divided GPU has no NVLinks, and without slices it cannot be used.
void leave_out_divided(MachineParts& parts, Nvml::Found& found) {
  const auto divided = [&found](const std::string& bus_id) {
    return std::find(found.divided.begin(), found.divided.end(), bus_id) != found.divided.end();
  };
  std::erase_if(found.links, [&](const GpuLink& link) { return divided(link.target); });
  std::erase_if(found.gpus, [&](const Gpu& gpu) {
    const bool useless = divided(gpu.bus_id) && gpu.mig.empty();
    if (useless)
      parts.guesses.push_back(fmt::format(
          "GPU {} ({}) is in MIG mode without MIG devices: not used (nvidia-smi mig creates "
          "them, nvidia-smi -mig 0 leaves MIG mode)",
          gpu.number, gpu.bus_id));
    return useless;
  });
}

void take(MachineParts& parts, Nvml::Found found) {
  leave_out_divided(parts, found);
  std::erase_if(
      parts.devices, [&found](const PciDevice& device) {  // true: this process may not use the GPU
        const auto same = [&device](const Gpu& gpu) { return gpu.bus_id == device.link.bus_id; };
        const bool nvidia = device.gpu && !device.gpu->arch.starts_with("gfx");
        return nvidia && std::none_of(found.gpus.begin(), found.gpus.end(), same);
      });
  for (Gpu& gpu : found.gpus) {
    const auto at = std::find_if(
        parts.devices.begin(), parts.devices.end(),
        [&gpu](const PciDevice& device) { return device.gpu && device.link.bus_id == gpu.bus_id; });
    if (at != parts.devices.end()) {
      at->gpu = std::move(gpu);
      continue;
    }
    PciDevice hidden;  // a container may show no PCI tree
    hidden.link.bus_id = gpu.bus_id;
    hidden.gpu = std::move(gpu);
    parts.devices.push_back(std::move(hidden));
  }
  parts.links.insert(parts.links.end(), found.links.begin(), found.links.end());
}

struct Discovered {
  base::Result<Machine> machine;
  bool whole = true;  // NVML listed all GPUs
};

Discovered read_devices(const DiscoverOptions& options) {
  bool whole = true;
  MachineParts parts = read_sysfs(options.roots);
  const bool nvidia = std::any_of(
      parts.devices.begin(), parts.devices.end(),
      [](const PciDevice& device) { return device.gpu && !device.gpu->arch.starts_with("gfx"); });
  if (nvidia) {
    const auto nvml = Nvml::open(options.nvml);
    auto found = nvml.ok() ? nvml->gpus() : base::Result<Nvml::Found>(nvml.status());
    if (found.ok()) {
      take(parts, std::move(*found));
      parts.links_known = true;
    } else {
      whole = false;
      parts.guesses.push_back(
          fmt::format("NVLinks, UUIDs and MIG state are unknown: {}", found.status().message()));
    }
  }
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  parts.name = host.data();
  return {build_machine(std::move(parts)), whole};
}

// The key of the cache; "": the state is unknown, so that a cache cannot be validated.
std::string cache_key(const DiscoverOptions& options) {
  if (options.cache_folder.empty()) return "";
  const auto boot = read_text_file(options.boot_id, 4096);
  const std::string id = boot.ok() ? std::string(trimmed(*boot)) : std::string();
  if (id.empty()) return "";
  const std::string state = device_state(options.roots);
  return fmt::format("{}-{:08x}", id,
                     base::crc32c(std::as_bytes(std::span(state.data(), state.size()))));
}

}  // namespace

base::Result<Machine> discover_machine(const DiscoverOptions& options) {
  REGROUP_ASSIGN_OR_RETURN(auto processors, options.processors ? *options.processors
                                                               : read_this_machine(options.source));
  const std::string key = cache_key(options);
  if (!key.empty() && !options.fresh) {
    if (auto machine = read_machine_cache(options.cache_folder, key)) {
      machine->processors = std::move(processors);
      return std::move(*machine);
    }
  }
  auto [machine, whole] = read_devices(options);
  if (!machine.ok()) return machine;
  if (!key.empty() && whole) write_machine_cache(options.cache_folder, key, *machine);
  machine->processors = std::move(processors);
  return machine;
}

}  // namespace regroup::topology
