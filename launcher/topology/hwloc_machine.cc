// libhwloc parses the XML. The checks before that set bounds which libhwloc does not have, and
// report the line of an error.
#include "launcher/topology/hwloc_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "launcher/topology/hwloc_library.h"
#include "launcher/topology/machine_builder.h"
#include "launcher/topology/paths.h"
#include "launcher/topology/products.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

using PciAttributes = hwloc_obj_attr_u::hwloc_pcidev_attr_s;

base::Status check_objects(const XmlInput& xml, const pugi::xml_node& node,
                           std::set<std::string_view>& bus_ids) {
  for (const pugi::xml_node& object : node.children("object")) {
    REGROUP_RETURN_IF_ERROR(xml.number(object, "os_index", 0, kMaxCpu, 0).status());
    for (const char* name :
         {"cpuset", "complete_cpuset", "allowed_cpuset", "nodeset", "complete_nodeset"}) {
      if (std::strlen(object.attribute(name).value()) > std::size_t{kMaxCpu} / 2)
        return xml.error(object, fmt::format("{} is too long", name));
    }
    const std::string_view id = object.attribute("pci_busid").value();
    if (!id.empty() && !bus_id(id))
      return xml.error(object,
                       fmt::format("pci_busid=\"{}\": expected a PCI address", id.substr(0, 40)));
    if (!id.empty() && !bus_ids.insert(id).second)
      return xml.error(object, fmt::format("bus ID {} is listed twice", id));
    REGROUP_RETURN_IF_ERROR(check_objects(xml, object, bus_ids));  // XmlInput bounds the depth
  }
  return {};
}

std::string bus_of(const PciAttributes& pci) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.domain, pci.bus, pci.dev, pci.func);
}

// hwloc gives the bytes on the wire without the line coding, which is 128/130 from generation 3 on.
double model_gbytes(double linkspeed) {
  if (linkspeed <= 0) return 0;
  const bool old = std::abs(linkspeed * 4 - std::round(linkspeed * 4)) < 1e-3;
  return linkspeed * 0.75 * (old ? 1 : 130.0 / 128);
}

PciUplink uplink(const PciAttributes& pci) { return {bus_of(pci), model_gbytes(pci.linkspeed), 0}; }

class HwlocReader {
 public:
  HwlocReader(const XmlInput& xml, const Hwloc& hwloc, hwloc_topology_t from)
      : xml_(xml), hwloc_(hwloc), from_(from) {}

  base::Result<Machine> read() {
    parts_.source = xml_.source();
    parts_.processors = hwloc_processors(hwloc_, from_);
    parts_.processors.this_machine = false;
    read_processors();
    for (const hwloc_obj_t pci : hwloc_objects(hwloc_, from_, HWLOC_OBJ_PCI_DEVICE))
      read_device(pci);
    read_links("NVLinkBandwidth", LinkKind::kNvlink);
    read_links("XGMIBandwidth", LinkKind::kXgmi);
    return build_machine(std::move(parts_));
  }

 private:
  void read_processors() {
    const hwloc_obj_t root = hwloc_.get_obj_by_depth(from_, 0, 0);
    if (const char* name = hwloc_info(root, "DMIProductName")) parts_.name = name;
    int family = 0, model = 0;
    for (const hwloc_obj_t package : hwloc_objects(hwloc_, from_, HWLOC_OBJ_PACKAGE)) {
      const auto info = [package](const char* name) {
        const char* value = hwloc_info(package, name);
        return std::string_view(value == nullptr ? "" : value);
      };
      const std::string_view vendor = info("CPUVendor"), called = info("CPUModel");
      parts_.vendor = vendor == "GenuineIntel"      ? "intel"
                      : vendor == "AuthenticAMD"    ? "amd"
                      : called.starts_with("POWER") ? "power"
                      : vendor == "ARM"             ? "arm"
                                                    : "";
      family = static_cast<int>(whole_number(info("CPUFamilyNumber"), 0, 4096).value_or(0));
      model = static_cast<int>(whole_number(info("CPUModelNumber"), 0, 65535).value_or(0));
    }
    parts_.numa_gbytes = numa_gbytes(parts_.vendor, family, model);
    for (const hwloc_obj_t node : hwloc_objects(hwloc_, from_, HWLOC_OBJ_NUMANODE)) {
      NumaNode numa{static_cast<int>(node->os_index), 0, bits(node->cpuset)};
      for (hwloc_obj_t up = node->parent; up != nullptr; up = up->parent) {
        if (up->type == HWLOC_OBJ_PACKAGE) numa.package = up->logical_index;
      }
      parts_.numas.push_back(std::move(numa));
    }
  }

  std::vector<int> bits(hwloc_const_bitmap_t set) const {
    std::vector<int> out;
    for (int i = hwloc_.bitmap_first(set); i >= 0 && i <= kMaxCpu; i = hwloc_.bitmap_next(set, i))
      out.push_back(i);
    return out;
  }

  void read_device(hwloc_obj_t pci) {
    const PciAttributes& attributes = pci->attr->pcidev;
    PciDevice device;
    device.link = uplink(attributes);
    std::vector<PciUplink> bridges;
    hwloc_obj_t up = pci->parent;
    for (; up != nullptr && up->type == HWLOC_OBJ_BRIDGE; up = up->parent) {
      if (up->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI)
        bridges.push_back(uplink(up->attr->bridge.upstream.pci));
    }
    device.switches = switches_among({bridges.rbegin(), bridges.rend()});
    if (up != nullptr && up->nodeset != nullptr) device.numa = hwloc_.bitmap_first(up->nodeset);
    read_inside(pci, device);
    if (device.gpu || !device.ports.empty()) parts_.devices.push_back(std::move(device));
  }

  void read_inside(hwloc_obj_t pci, PciDevice& device) {
    const PciAttributes& attributes = pci->attr->pcidev;
    const GpuProduct* product = gpu_product(attributes.vendor_id, attributes.device_id);
    Nic nic;
    for (hwloc_obj_t inside = pci->io_first_child; inside != nullptr;
         inside = inside->next_sibling) {
      if (inside->type != HWLOC_OBJ_OS_DEVICE || inside->name == nullptr) continue;
      const std::string_view name = inside->name;
      std::uint32_t type;  // may be a combination of bits, in a recording by hwloc 3
      static_assert(sizeof type == sizeof inside->attr->osdev.type);
      std::memcpy(&type, &inside->attr->osdev.type, sizeof type);
      if (type == HWLOC_OBJ_OSDEV_OPENFABRICS) nic.name = name;
      if (type == HWLOC_OBJ_OSDEV_NETWORK && nic.interface.empty()) nic.interface = name;
      for (const std::string_view prefix : {"nvml", "rsmi", "cuda"}) {
        if (!name.starts_with(prefix)) continue;
        if (!device.gpu) device.gpu.emplace();
        device.gpu->number = static_cast<int>(whole_number(name.substr(4), 0, 65535).value_or(0));
        fill_gpu(inside, *device.gpu);
      }
    }
    if (device.gpu && product != nullptr && device.gpu->arch.empty())
      device.gpu->arch = product->arch;
    if (device.gpu && product != nullptr && device.gpu->product.empty())
      device.gpu->product = product->name;
    if (device.gpu || (nic.name.empty() && nic.interface.empty())) return;
    const bool infiniband = attributes.class_id == 0x0207, verbs = !nic.name.empty();
    nic.kind = infiniband                                           ? NicKind::kInfiniband
               : is_efa(attributes.vendor_id, attributes.device_id) ? NicKind::kEfa
               : verbs                                              ? NicKind::kRoce
                                                                    : NicKind::kEthernet;
    if (nic.name.empty()) nic.name = nic.interface;
    nic.gbits = nic_product_gbits(attributes.vendor_id, attributes.device_id);
    if (nic.gbits > 0)
      parts_.guesses.push_back(
          fmt::format("{}: speed unknown; assuming {} Gb/s, its product's", nic.name, nic.gbits));
    device.ports.push_back(std::move(nic));
  }

  void fill_gpu(hwloc_obj_t inside, Gpu& gpu) {
    gpus_[inside] = bus_of(inside->parent->attr->pcidev);
    if (const char* model = hwloc_info(inside, "GPUModel")) gpu.product = model;
    for (const char* name : {"NVIDIAUUID", "AMDUUID"}) {
      if (const char* uuid = hwloc_info(inside, name)) gpu.uuid = uuid;
    }
    if (const GpuProduct* product = gpu_product(gpu.product)) gpu.arch = product->arch;
    arch_[gpus_[inside]] = gpu.arch;
  }

  // One link of each kind, in MB/s as hwloc writes it.
  std::uint64_t one_link(const std::string& bus_id, LinkKind kind) const {
    if (kind == LinkKind::kXgmi) return 100'000;  // hwloc reports this for each pair, always
    const auto found = arch_.find(bus_id);
    const std::string arch = found == arch_.end() ? "" : found->second;
    return arch == "sm60" ? 20'000 : arch.starts_with("sm10") ? 50'000 : 25'000;
  }

  void read_links(const char* name, LinkKind kind) {
    unsigned count = 1;
    hwloc_distances_s* found = nullptr;
    if (hwloc_.distances_get_by_name(from_, name, &count, &found, 0) != 0 || count == 0) return;
    for (unsigned i = 0; i < found->nbobjs; ++i) {
      const auto from = gpus_.find(found->objs[i]);
      if (from == gpus_.end()) continue;
      for (unsigned j = 0; j < found->nbobjs; ++j) {
        const std::uint64_t megabytes = found->values[i * found->nbobjs + j];
        if (i != j && megabytes > 0) add_link(from->second, found->objs[j], kind, megabytes);
      }
    }
    hwloc_.distances_release(from_, found);
  }

  void add_link(const std::string& from, hwloc_obj_t to, LinkKind kind, std::uint64_t megabytes) {
    GpuLink link;
    link.kind = kind;
    link.from = from;
    link.lanes = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(megabytes / one_link(from, kind), 1, 64));
    const auto gpu = gpus_.find(to);
    if (gpu != gpus_.end()) {
      link.target = gpu->second;
    } else if (to->type == HWLOC_OBJ_PCI_DEVICE) {  // the class of an NVSwitch may be 0
      link.to = GpuLink::To::kSwitch;
      link.target = bus_of(to->attr->pcidev);
    } else {
      link.to = GpuLink::To::kProcessor;
    }
    parts_.links.push_back(std::move(link));
  }

  const XmlInput& xml_;
  const Hwloc& hwloc_;
  hwloc_topology_t from_;
  MachineParts parts_;
  std::map<hwloc_obj_t, std::string> gpus_;  // OS device -> bus id
  std::map<std::string, std::string> arch_;  // by bus id
};

}  // namespace

base::Result<Machine> read_hwloc_xml(const XmlInput& xml, const std::string& text) {
  std::set<std::string_view> bus_ids;
  REGROUP_RETURN_IF_ERROR(check_objects(xml, xml.root(), bus_ids));
  const std::string known = as_hwloc2_xml(text);
  std::optional<base::Result<Machine>> out;
  const base::Status status = with_hwloc(
      xml.source(), HWLOC_TYPE_FILTER_KEEP_ALL,
      [&known](const Hwloc& hwloc, hwloc_topology_t topology) {
        return hwloc.topology_set_xmlbuffer(topology, known.c_str(),
                                            static_cast<int>(known.size()) + 1);
      },
      [&](const Hwloc& hwloc, hwloc_topology_t from) {
        out = HwlocReader(xml, hwloc, from).read();
        return base::Status();
      });
  if (!status.ok()) return status;
  return std::move(*out);
}

}  // namespace regroup::topology
