// Paths are compared by class first, then by bandwidth.
#include "launcher/placement/near_device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace regroup::placement {
namespace {

base::Result<std::uint32_t> find_device(const topology::Machine& machine, const std::string& host,
                                        const std::string& name) {
  std::vector<std::string> known;
  for (std::size_t i = 0; i < machine.nics.size(); ++i) {
    if (machine.nics[i].name == name || machine.nics[i].interface == name) {
      if (machine.nics[i].up) return machine.nic_end(i);
      return base::invalid_argument(fmt::format("--map-by device={}: down on {}", name, host));
    }
    known.push_back(machine.nics[i].name);
  }
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    const std::string called = fmt::format("gpu{}", machine.gpus[i].number);
    if (called == name || machine.gpus[i].bus_id == name) return machine.gpu_end(i);
    known.push_back(called);
  }
  return base::invalid_argument(
      fmt::format("--map-by device={}: not found on {}, which has {}", name, host,
                  known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
}

std::vector<std::uint32_t> by_nearness(const topology::Machine& machine, GpuSet free,
                                       std::uint32_t device) {
  std::vector<std::uint32_t> out = members_of(free);
  std::stable_sort(out.begin(), out.end(), [&](std::uint32_t a, std::uint32_t b) {
    const topology::Path &to_a = machine.path(a, device), &to_b = machine.path(b, device);
    return to_a.cls != to_b.cls ? to_a.cls < to_b.cls : to_a.gbytes > to_b.gbytes;
  });
  return out;
}

}  // namespace

base::Result<std::vector<HostPart>> choose_near(const topology::Fabric& fabric,
                                                const std::vector<HostShare>& allocation,
                                                const DeviceRequest& request) {
  std::vector<HostPart> out;
  std::uint32_t left = request.sets;
  for (const HostShare& share : allocation) {
    const topology::Machine& machine = fabric.machines[fabric.hosts[share.host].machine];
    std::uint32_t sets = std::min(left, count_of(share.free) / request.set.gpus);
    if (request.sets_per_host != 0) sets = std::min(sets, request.sets_per_host);
    if (request.heed_slots && share.slots != 0)
      sets = std::min(sets, share.slots / request.set.ranks);
    if (sets == 0) continue;
    REGROUP_ASSIGN_OR_RETURN(auto device,
                             find_device(machine, fabric.hosts[share.host].name, request.device));
    HostPart part{share.host, 0, share.free};
    const std::vector<std::uint32_t> order = by_nearness(machine, share.free, device);
    for (std::uint32_t i = 0; i < sets * request.set.gpus; ++i) part.gpus |= bit_of(order[i]);
    out.push_back(part);
    left -= sets;
  }
  if (left > 0) out.clear();
  return out;
}

}  // namespace regroup::placement
