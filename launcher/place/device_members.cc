// Options in, place_on_devices(), members out.
#include "launcher/place/device_members.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <numeric>

#include "launcher/place/device_place.h"
#include "launcher/place/explicit_places.h"
#include "launcher/place/rank_environment.h"
#include "launcher/topo/discover.h"
#include "launcher/topo/load_machine.h"
#include "launcher/topo/read_topology.h"

namespace regroup::launcher {
namespace {

using core::Result;
using core::Status;

// NCCL is given the file where it could not find out by itself what the file says.
std::string nccl_file(const std::string& path) {
  std::ifstream file(path);
  std::string start(7, 0);
  return file.read(start.data(), 7) && start == "<system" ? path : "";
}

Result<Machine> machine_for(const Options& options) {
  const std::string& path = options.mapping.machine;
  auto machine = path.empty() ? discover_machine({}) : load_machine(path);
  if (machine.ok() && machine->gpus.empty())
    return core::invalid_argument(
        fmt::format("--placement: {} has no GPU", path.empty() ? "this machine" : path));
  return machine;
}

Spot spot_of(const Machine& machine, const Topology& topology, const DeviceSpot& device) {
  std::vector<std::string> gpus;
  for (const std::uint32_t gpu : device.gpus) gpus.push_back(fmt::format("GPU {}", machine.gpus[gpu].number));
  return {device.cpus, threads_with(topology, device.cpus), fmt::format("{}", fmt::join(gpus, ", ")),
          device.why};
}

}  // namespace

bool wants_devices(const Options& options) {
  const MapBy& map = options.mapping.map;
  return options.mapping.packing || (map.kind == MapBy::Kind::kDistance && !map.device.empty());
}

Result<PlacedJob> place_with_devices(const Options& options, const Allocation& allocation,
                                     const std::vector<std::uint32_t>& counts) {
  auto machine = machine_for(options);
  if (!machine.ok()) return machine.status();
  auto free = visible_gpus(*machine, options.environment);
  if (!free.ok()) return free.status();
  auto topology = read_this_machine();
  if (!topology.ok()) return topology.status();
  const Fabric fabric = flat_fabric(*machine, {allocation.hosts.at(0).name});
  DeviceRequest request;
  request.sets = std::accumulate(counts.begin(), counts.end(), 0U);
  request.packing = options.mapping.packing.value_or(Packing::kBest);
  request.device = options.mapping.map.device;
  auto placed = place_on_devices(fabric, {{0, *free, allocation.hosts.at(0).cores}}, request);
  if (!placed.ok()) return Status(placed.code(), fmt::format("--placement: {}", placed.status().message()));
  PlacedJob out;
  out.environments =
      rank_environments(fabric, *placed, 0, nccl_file(options.mapping.machine), options.environment);
  out.why = std::move(placed->why);
  out.placement.policy.bound = true;  // one of whose processors nothing is known stays free
  for (const DeviceSpot& device : placed->ranks)
    out.placement.ranks.push_back(spot_of(*machine, *topology, device));
  out.topology = std::move(*topology);
  return out;
}

}  // namespace regroup::launcher
