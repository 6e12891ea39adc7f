// Any bytes as the words of `regroup place`, cut at each byte 0: refused or understood, and what is
// understood is placed on a small cluster, or refused with a sentence, never so that two ranks have
// one GPU. The same bytes as what a host says of itself.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/values.h"
#include "launcher/placement/host_inventory.h"
#include "launcher/placement/place_command.h"
#include "launcher/topology/machine_text.h"
#include "launcher/topology/machine_view.h"
#include "tests/fuzz/require.h"

using namespace regroup;
using regroup::fuzz::require;

namespace {

constexpr std::uint32_t kMostRanks = 64;

const topology::Fabric& cluster() {
  static const topology::Fabric kCluster = [] {
    auto machine = topology::parse_machine_text(
        "cpu intel sys=10\nnuma 0 cpus=0-3\nnuma 1 cpus=4-7\nswitch p0 at=numa:0\nswitch p1 "
        "at=numa:1\n"
        "gpu 0-1 at=p0 model=A arch=sm80 memory=8 label=old\ngpu 2-3 at=p1 model=B arch=sm80 "
        "memory=8\n"
        "nic mlx5_0 at=p0 kind=ib speed=100\nnic mlx5_1 at=p1 kind=ib speed=100\nnvlink 0 "
        "1\nnvlink 2 3 "
        "links=2\n",
        "fuzz");
    require(machine.ok());
    return topology::flat_fabric(*machine, {"a", "b", "c"});
  }();
  return kCluster;
}

void place(const placement::PlaceCommand& command) {
  const placement::DeviceRequest& request = command.request;
  const std::uint32_t servers = request.servers.empty() ? 0 : request.servers[0].count;
  if (std::uint64_t{request.sets} * request.set.ranks > kMostRanks || servers > kMostRanks) return;
  const auto placement = placement::place_command(command, cluster());
  if (!placement.ok()) return require(!placement.status().message().empty());
  require(placement->slots.size() == request.sets * request.set.ranks + servers);
  require(!placement::place_text(command, cluster(), *placement).empty());
  require(!placement::place_json(cluster(), *placement).empty());
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
  for (const placement::DeviceSlot& slot : placement->devices) {
    for (const std::uint32_t gpu : slot.gpus) {
      const bool fresh = seen.emplace(slot.host, gpu).second;
      require(fresh || request.set.ranks > 1);  // ranks of one set share theirs
    }
  }
}

// As the launcher uses it.
void check_inventory(const placement::HostInventory& inventory) {
  const std::string text = placement::inventory_to_json(inventory);
  const auto again = placement::inventory_from_json(text);
  require(again.ok() && placement::inventory_to_json(*again) == text);
  require((placement::idle_gpus(inventory) & ~inventory.free) == 0);
  require(!topology::machine_view(inventory.machine, {}).empty());
  for (const topology::Nic& nic : inventory.nics)
    require(!topology::nic_kind_name(nic.kind).empty());
  for (const auto& [gpu, by] : inventory.claimed)
    require(!placement::claim_name(inventory.machine.gpus.at(gpu)).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto command =
      placement::parse_place_command(base::split(bytes, std::string_view("\0", 1)));
  require(command.ok() || !command.status().message().empty());
  if (command.ok() && !command->help) place(*command);
  if (const auto inventory = placement::inventory_from_json(bytes); inventory.ok())
    check_inventory(*inventory);
  return 0;
}
