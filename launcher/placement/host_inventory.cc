// Processors are always detected on the host: a file may describe ones that it does not have.
#include "launcher/placement/host_inventory.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/json_input.h"
#include "launcher/placement/visible_gpus.h"
#include "launcher/topology/discover.h"
#include "launcher/topology/host_nics.h"
#include "launcher/topology/load_machine.h"
#include "launcher/topology/machine_json.h"
#include "launcher/topology/paths.h"
#include "launcher/topology/read_topology.h"

namespace regroup::placement {

namespace {

void find_nics(HostInventory& inventory, const topology::SysfsRoots& roots) {
  inventory.nics = topology::host_nics(inventory.machine, roots);
  bool any_down = false;
  for (std::size_t i = 0; i < inventory.nics.size(); ++i) {
    if (inventory.nics[i].up) continue;
    inventory.machine.nics[i].up = false;
    any_down = true;
  }
  if (any_down) topology::find_paths(inventory.machine);
}

// Names are printed on terminals: control characters, including 8-bit ones, become '?'. The input
// is UTF-8.
std::string printable(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool wide = byte == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    out += byte < 0x20 || byte == 0x7F || wide ? '?' : text[i];
    i += wide ? 1 : 0;
  }
  return out;
}

void make_printable(nlohmann::json& json) {
  if (json.is_string()) json = printable(json.get_ref<const std::string&>());
  if (!json.is_structured()) return;
  for (nlohmann::json& part : json) make_printable(part);
}

}  // namespace

base::Result<HostInventory> take_inventory(const InventoryOptions& order, std::vector<int> cpus,
                                           const spec::Environment& own,
                                           const std::string& cache_folder,
                                           const topology::SysfsRoots& roots) {
  const std::string source = topology::machine_source(own);
  REGROUP_ASSIGN_OR_RETURN(auto processors, topology::read_this_machine(source));
  if (!processors.this_machine)
    return base::unavailable(fmt::format("{} describes another machine", source));
  HostInventory out;
  out.cpus = std::move(cpus);
  if (order.devices) {
    topology::DiscoverOptions discover;
    discover.roots = roots;
    discover.cache_folder = cache_folder;
    discover.processors = processors;
    REGROUP_ASSIGN_OR_RETURN(out.machine, order.topology.empty()
                                              ? topology::discover_machine(discover)
                                              : topology::load_machine(order.topology));
    if (!order.topology.empty()) find_nics(out, roots);
    REGROUP_ASSIGN_OR_RETURN(out.free, visible_gpus(out.machine, own));
    const process::ClaimedGpus claimed(process::claim_scope(own, order.claims.job, order.claims));
    for (const std::uint32_t gpu : members_of(out.free)) {
      if (const process::GpuOwner* owner = claimed.owner(claim_name(out.machine.gpus[gpu])))
        out.claimed[gpu] = owner->text();
    }
  }
  out.machine.processors = std::move(processors);
  return out;
}

GpuSet idle_gpus(const HostInventory& inventory) {
  GpuSet out = inventory.free;
  for (const auto& [gpu, by] : inventory.claimed) out &= ~bit_of(gpu);
  return out;
}

std::string claim_name(const topology::Gpu& gpu) {
  return !gpu.uuid.empty()     ? gpu.uuid
         : !gpu.bus_id.empty() ? gpu.bus_id
                               : fmt::format("number {}", gpu.number);
}

std::string inventory_to_json(const HostInventory& inventory) {
  nlohmann::json claimed = nlohmann::json::array();
  for (const auto& [gpu, by] : inventory.claimed) claimed.push_back({gpu, by});
  return fmt::format(R"({{"cpus":{},"free":{},"claimed":{},"quota":{},"nics":{},"machine":{}}})",
                     nlohmann::json(inventory.cpus).dump(), inventory.free, claimed.dump(),
                     inventory.quota, topology::nics_to_json(inventory.nics),
                     topology::machine_to_json(inventory.machine));
}

base::Result<HostInventory> inventory_from_json(std::string_view text) {
  const base::Status refused(base::Code::kDataLoss, "the inventory of a host is incomplete");
  nlohmann::json json = base::parse_json(text);
  make_printable(json);
  if (!json.is_object() || !json.contains("machine") ||
      !base::whole_but(json, topology::kRealOfMachine))
    return refused;
  REGROUP_ASSIGN_OR_RETURN(auto machine, topology::machine_from_json(json["machine"].dump()));
  HostInventory out;
  out.machine = std::move(machine);
  if (!json.contains("nics")) return refused;
  REGROUP_ASSIGN_OR_RETURN(out.nics, topology::nics_from_json(json["nics"].dump()));
  if (!out.nics.empty() && out.nics.size() != out.machine.nics.size()) return refused;
  try {
    json.at("cpus").get_to(out.cpus);
    json.at("free").get_to(out.free);
    for (const nlohmann::json& one : json.at("claimed"))
      out.claimed[one.at(0).get<std::uint32_t>()] = one.at(1).get<std::string>();
    json.at("quota").get_to(out.quota);
  } catch (const nlohmann::json::exception&) {
    return refused;
  }
  std::set<int> there;
  for (const topology::HwThread& thread : out.machine.processors.threads) there.insert(thread.os);
  const bool known =
      std::all_of(out.cpus.begin(), out.cpus.end(), [&](int cpu) { return there.contains(cpu); });
  const GpuSet all =
      out.machine.gpus.size() >= kMostGpus ? ~GpuSet{0} : bit_of(out.machine.gpus.size()) - 1;
  if (!known || !std::is_sorted(out.cpus.begin(), out.cpus.end()) || (out.free & ~all) != 0)
    return refused;
  for (const auto& [gpu, by] : out.claimed) {
    if (gpu >= out.machine.gpus.size() || gpu >= kMostGpus) return refused;
  }
  return out;
}

}  // namespace regroup::placement
