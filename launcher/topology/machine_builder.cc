// Builds a Machine from parts: nodes in the order of their numbers, each link once, gaps filled
// with a warning.
#include "launcher/topology/machine_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>

#include "launcher/topology/paths.h"
#include "launcher/topology/products.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

class Builder {
 public:
  explicit Builder(MachineParts parts) : parts_(std::move(parts)) {}

  base::Result<Machine> build() {
    machine_.name = parts_.name;
    machine_.vendor = parts_.vendor;
    machine_.processors = std::move(parts_.processors);
    machine_.guesses = std::move(parts_.guesses);
    REGROUP_RETURN_IF_ERROR(add_numas());
    std::stable_sort(parts_.devices.begin(), parts_.devices.end(),
                     [](const PciDevice& a, const PciDevice& b) {
                       const auto key = [](const PciDevice& device) {
                         return device.gpu ? device.gpu->number : INT_MAX;
                       };
                       return key(a) < key(b);
                     });
    if (parts_.devices.size() > kMaxEnds)
      return fail(0, fmt::format("more than {} devices", kMaxEnds));
    for (PciDevice& device : parts_.devices) REGROUP_RETURN_IF_ERROR(add_device(device));
    if (parts_.links.empty() && !parts_.links_known) fill_in_nvlinks();
    REGROUP_RETURN_IF_ERROR(add_gpu_links());
    add_switch_links();
    link_numas(machine_, parts_.numa_gbytes);
    REGROUP_RETURN_IF_ERROR(check_machine(machine_, parts_.source));
    find_paths(machine_);
    return std::move(machine_);
  }

 private:
  [[nodiscard]] base::Status fail(std::size_t line, std::string_view what) const {
    return input_error(parts_.source, line, what);
  }

  void guess(std::string sentence) { machine_.guesses.push_back(std::move(sentence)); }

  base::Status add_numas() {
    std::sort(parts_.numas.begin(), parts_.numas.end(),
              [](const NumaNode& a, const NumaNode& b) { return a.number < b.number; });
    if (parts_.numas.empty()) parts_.numas.push_back({});
    if (parts_.numas.size() > kMaxEnds)
      return fail(0, fmt::format("more than {} NUMA nodes", kMaxEnds));
    for (const NumaNode& numa : parts_.numas) {
      if (!numas_.emplace(numa.number, 0).second)
        return fail(0, fmt::format("NUMA node {} is listed twice", numa.number));
      numas_[numa.number] = add_numa(machine_, numa);
    }
    return {};
  }

  base::Result<std::uint32_t> numa_of(const PciDevice& device) {
    if (device.numa < 0) {
      if (numas_.size() > 1)
        guess(fmt::format("{}: nearest NUMA node unknown; assuming the first", device.link.bus_id));
      return numas_.begin()->second;
    }
    const auto found = numas_.find(device.numa);
    if (found != numas_.end()) return found->second;
    return fail(device.line, fmt::format("{} is near NUMA node {}, which does not exist",
                                         device.link.bus_id, device.numa));
  }

  void link_up(std::uint32_t node, std::uint32_t above, const PciUplink& link) {
    const double gbytes = link.gbytes > 0 ? link.gbytes : pci_gbytes(0, 0);
    add_link(machine_, {LinkKind::kPci, node, above, link.lanes, gbytes});
  }

  // Registers the bus id of a node. kInvalidArgument: another node has it.
  base::Status take_bus_id(const std::string& bus_id, std::uint32_t node, std::size_t line) {
    if (bus_id.empty() || nodes_.emplace(bus_id, node).second) return {};
    return fail(line, fmt::format("bus ID {} is listed twice", bus_id));
  }

  base::Status add_device(PciDevice& device) {
    REGROUP_ASSIGN_OR_RETURN(const auto numa, numa_of(device));
    std::uint32_t above = numa;
    for (const PciUplink& pci : device.switches) {
      const auto known = switches_.find(pci.bus_id);
      if (known != switches_.end()) {
        above = known->second;
        continue;
      }
      const std::uint32_t node = add_pci_switch(machine_, {pci.bus_id});
      REGROUP_RETURN_IF_ERROR(take_bus_id(pci.bus_id, node, device.line));
      link_up(node, above, pci);
      above = switches_[pci.bus_id] = node;
    }
    const std::uint32_t near = machine_.nodes[numa].index;
    return device.gpu ? add_one_gpu(device, above, near) : add_card(device, above, near);
  }

  base::Status add_one_gpu(PciDevice& device, std::uint32_t above, std::uint32_t near) {
    device.gpu->bus_id = device.link.bus_id;
    device.gpu->numa = near;
    if (!device.gpu->mig.empty()) return add_slices(device, above);
    const std::uint32_t node = add_gpu(machine_, *device.gpu);
    link_up(node, above, device.link);
    return take_bus_id(device.link.bus_id, node, device.line);
  }

  base::Status add_slices(const PciDevice& device, std::uint32_t above) {
    const std::uint32_t card = add_plain_node(machine_, NodeKind::kCard);
    link_up(card, above, device.link);
    for (const MigSlice& slice : device.gpu->mig) {
      Gpu gpu = *device.gpu;
      gpu.uuid = slice.uuid;
      gpu.product += " MIG " + slice.profile;
      gpu.memory_bytes = slice.memory_bytes;
      gpu.mig = {slice};
      link_up(add_gpu(machine_, std::move(gpu)), card, device.link);
    }
    return take_bus_id(device.link.bus_id, card, device.line);
  }

  base::Status add_card(PciDevice& device, std::uint32_t above, std::uint32_t near) {
    const bool shared = device.ports.size() > 1;
    if (shared) {
      const std::uint32_t card = add_plain_node(machine_, NodeKind::kCard);
      link_up(card, above, device.link);
      above = card;
    }
    std::uint32_t node = above;
    for (Nic& port : device.ports) {
      port.bus_id = device.link.bus_id;
      port.numa = near;
      node = add_nic(machine_, port);
      link_up(node, above, device.link);
    }
    return device.ports.empty() ? base::Status()
                                : take_bus_id(device.link.bus_id, node, device.line);
  }

  // Fills in the NVLinks of boards of 8 and 16 GPUs on which all links go to NVSwitches, if no
  // NVLink is listed.
  void fill_in_nvlinks() {
    const GpuProduct* product =
        machine_.gpus.empty() ? nullptr : gpu_product(machine_.gpus[0].product);
    if (product == nullptr || product->nvlinks == 0) return;
    const bool alike = std::all_of(machine_.gpus.begin(), machine_.gpus.end(), [&](const Gpu& gpu) {
      return gpu.product == machine_.gpus[0].product;
    });
    const bool board = machine_.gpus.size() == 8 || machine_.gpus.size() == 16;
    if (!product->nvswitch || !alike || !board) {
      guess(fmt::format(
          "no NVLink is listed, and the links between {} {} are unknown: assuming PCIe only",
          machine_.gpus.size(), product->name));
      return;
    }
    for (const Gpu& gpu : machine_.gpus)
      parts_.links.push_back(
          {LinkKind::kNvlink, gpu.bus_id, GpuLink::To::kSwitch, "", product->nvlinks, 0});
    guess(fmt::format("no NVLink is listed: assuming that {} have {} each, to NVSwitches",
                      product->name, product->nvlinks));
  }

  // The GPU with this bus id; kNoPart: there is none.
  [[nodiscard]] std::uint32_t gpu_at(const std::string& bus_id) const {
    const auto found = nodes_.find(bus_id);
    if (found == nodes_.end() || machine_.nodes[found->second].kind != NodeKind::kGpu)
      return kNoPart;
    return found->second;
  }

  [[nodiscard]] double each(const GpuLink& link, std::uint32_t gpu) const {
    const std::string& arch = machine_.gpus[machine_.nodes[gpu].index].arch;
    return link_gbytes(!arch.empty() ? arch : link.kind == LinkKind::kXgmi ? "gfx" : "sm70");
  }

  base::Status add_gpu_links() {
    std::map<std::pair<std::uint32_t, std::uint32_t>, GpuLink> listed;  // from, to
    for (const GpuLink& link : parts_.links) {
      const std::uint32_t from = gpu_at(link.from);
      if (from == kNoPart)
        return fail(link.line, fmt::format("'{}', which lists a link, is not a GPU", link.from));
      if (link.to != GpuLink::To::kGpu) continue;
      const std::uint32_t to = gpu_at(link.target);
      if (to == from) {
        guess(fmt::format("{} lists a link to itself, which is ignored", link.from));
        continue;
      }
      if (to == kNoPart) {
        if (!parts_.live)
          return fail(link.line,
                      fmt::format("{} lists a link to {}, which is not a GPU of this machine",
                                  link.from, link.target));
        guess(fmt::format("{} has a link to {}, which is not visible", link.from, link.target));
        continue;
      }
      const auto [at, fresh] = listed.emplace(std::pair(from, to), link);
      if (!fresh) at->second.lanes += link.lanes;
    }
    for (const auto& [ends, link] : listed) REGROUP_RETURN_IF_ERROR(add_pair(listed, ends, link));
    return {};
  }

  using Listed = std::map<std::pair<std::uint32_t, std::uint32_t>, GpuLink>;

  base::Status add_pair(const Listed& listed, std::pair<std::uint32_t, std::uint32_t> ends,
                        const GpuLink& link) {
    const auto back = listed.find({ends.second, ends.first});
    if (back == listed.end() || back->second.lanes != link.lanes) {
      const std::string what =
          fmt::format("{} lists {} link(s) to {}, which lists {} in return", link.from, link.lanes,
                      link.target, back == listed.end() ? 0 : back->second.lanes);
      if (!parts_.live) return fail(link.line, what);
      guess(what);
      if (back == listed.end()) return {};
    }
    if (ends.first > ends.second) return {};
    const std::uint32_t lanes = std::min(link.lanes, back->second.lanes);
    add_link(machine_, {link.kind, ends.first, ends.second, lanes, lanes * each(link, ends.first)});
    return {};
  }

  // Links to NVSwitches and to processors.
  void add_switch_links() {
    std::map<std::uint32_t, std::uint32_t> to_switch;  // GPU -> number of its links
    for (const GpuLink& link : parts_.links) {
      const std::uint32_t gpu = gpu_at(link.from);
      if (link.to == GpuLink::To::kProcessor) {
        const std::uint32_t near = machine_.gpus[machine_.nodes[gpu].index].numa;
        add_link(machine_, {link.kind, gpu, near, link.lanes,
                            link.lanes * each(link, gpu)});  // NUMA nodes come first
      }
      if (link.to != GpuLink::To::kSwitch) continue;
      to_switch[gpu] += link.lanes;
      const Switch seen{link.target.empty() ? std::string(kNvSwitchesOfBoard) : link.target};
      auto& switches = machine_.nv_switches;
      if (std::find(switches.begin(), switches.end(), seen) == switches.end())
        switches.push_back(seen);
    }
    if (to_switch.empty()) return;
    const std::uint32_t domain = add_plain_node(machine_, NodeKind::kNvSwitch);
    for (const auto& [gpu, lanes] : to_switch)
      add_link(machine_, {LinkKind::kNvlink, gpu, domain, lanes, lanes * each({}, gpu)});
  }

  MachineParts parts_;
  Machine machine_;
  std::map<int, std::uint32_t> numas_;             // operating system number -> node
  std::map<std::string, std::uint32_t> nodes_;     // bus id -> node
  std::map<std::string, std::uint32_t> switches_;  // bus id -> node
};

}  // namespace

base::Result<Machine> build_machine(MachineParts parts) {
  return Builder(std::move(parts)).build();
}

std::vector<PciUplink> switches_among(const std::vector<PciUplink>& bridges) {
  std::vector<PciUplink> out;
  for (std::size_t i = 1; i < bridges.size(); i += 2) out.push_back(bridges[i]);
  return out;
}

}  // namespace regroup::topology
