// <system><cpu numaid affinity arch vendor familyid modelid> <pci busid class link_speed
// link_width> nested, with <gpu dev sm><nvlink target count tclass> or <nic><net name speed port>
// in the innermost. A <pci> that holds another is a switch.
#include "launcher/topology/nccl_xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "launcher/topology/machine_builder.h"
#include "launcher/topology/paths.h"
#include "launcher/topology/products.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

std::string_view attribute(const pugi::xml_node& node, const char* name) {
  return node.attribute(name).value();
}

// Parses a PCI class such as "0x030200"; 0 if malformed.
std::uint32_t hex(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

// Parses an affinity mask such as "00000000,0000ffff": words of 32 bits, the highest first.
std::optional<std::vector<int>> cpu_mask(std::string_view text) {
  std::vector<int> out;
  if (text.empty()) return out;
  std::vector<std::string_view> words = split(text, ',');
  if (words.size() > static_cast<std::size_t>(kMaxCpu) / 32) return {};
  std::reverse(words.begin(), words.end());
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].empty() || words[i].size() > 8) return {};
    std::uint32_t bits = 0;
    const auto [end, error] =
        std::from_chars(words[i].data(), words[i].data() + words[i].size(), bits, 16);
    if (error != std::errc() || end != words[i].data() + words[i].size()) return {};
    for (int bit = 0; bit < 32; ++bit) {
      if ((bits >> bit & 1U) != 0) out.push_back(static_cast<int>(i) * 32 + bit);
    }
  }
  return out;
}

bool is_gpu_class(std::uint32_t pci) {
  return pci >> 8 == 0x0302 || pci >> 8 == 0x0300 || pci >> 8 == 0x0380 || pci >> 8 == 0x1200;
}
bool is_nic_class(std::uint32_t pci) { return pci >> 8 == 0x0207 || pci >> 8 == 0x0200; }

class NcclReader {
 public:
  explicit NcclReader(const XmlInput& xml) : xml_(xml) {}

  base::Result<Machine> read() {
    parts_.source = xml_.source();
    parts_.name = std::string(attribute(xml_.root(), "name"));
    for (const pugi::xml_node& cpu : xml_.root().children("cpu"))
      REGROUP_RETURN_IF_ERROR(read_cpu(cpu));
    if (parts_.numas.empty()) return xml_.error(xml_.root(), "expected a <cpu>");
    know_machine();
    number_gpus();
    return build_machine(std::move(parts_));
  }

 private:
  base::Status read_cpu(const pugi::xml_node& cpu) {
    REGROUP_ASSIGN_OR_RETURN(const auto id, xml_.number(cpu, "numaid", -1, kMaxCpu, 0));
    REGROUP_ASSIGN_OR_RETURN(const auto family, xml_.number(cpu, "familyid", -1, 4096, 0));
    REGROUP_ASSIGN_OR_RETURN(const auto model, xml_.number(cpu, "modelid", -1, 65535, 0));
    auto cpus = cpu_mask(attribute(cpu, "affinity"));
    if (!cpus) return xml_.error(cpu, "affinity: expected a processor mask");
    numa_ = static_cast<int>(std::max<std::int64_t>(id, 0));
    for (const NumaNode& other : parts_.numas) {
      if (other.number == numa_)
        return xml_.error(cpu, fmt::format("numaid {} is listed twice", numa_));
    }
    add_threads(*cpus);
    parts_.numas.push_back({numa_, static_cast<std::uint32_t>(numa_), std::move(*cpus)});
    const std::string_view arch = attribute(cpu, "arch"), vendor = attribute(cpu, "vendor");
    parts_.vendor = arch == "arm64"            ? "arm"
                    : arch == "ppc64"          ? "power"
                    : vendor == "AuthenticAMD" ? "amd"
                    : vendor == "GenuineIntel" ? "intel"
                                               : "";
    parts_.numa_gbytes =
        numa_gbytes(parts_.vendor, static_cast<int>(family), static_cast<int>(model));
    for (const pugi::xml_node& pci : cpu.children("pci")) REGROUP_RETURN_IF_ERROR(read_pci(pci));
    if (cpu.child("nic")) REGROUP_RETURN_IF_ERROR(read_nic(cpu, {}));
    return {};
  }

  // The file has no cores: each hardware thread becomes a core.
  void add_threads(const std::vector<int>& cpus) {
    for (const int cpu : cpus) {
      HwThread thread;
      thread.os = cpu;
      thread.parts.fill(kNoPart);
      const auto number = static_cast<std::uint32_t>(parts_.processors.threads.size());
      for (const spec::Unit unit : {spec::Unit::kHwThread, spec::Unit::kCore})
        thread.parts[static_cast<std::size_t>(unit)] = number;
      for (const spec::Unit unit : {spec::Unit::kNuma, spec::Unit::kPackage})
        thread.parts[static_cast<std::size_t>(unit)] =
            static_cast<std::uint32_t>(parts_.numas.size());
      thread.parts[static_cast<std::size_t>(spec::Unit::kNode)] = 0;
      parts_.processors.threads.push_back(thread);
    }
    parts_.processors.numa_bytes.push_back(0);
    parts_.processors.this_machine = false;
  }

  base::Result<PciUplink> uplink(const pugi::xml_node& pci) {
    const auto id = bus_id(attribute(pci, "busid"));
    if (!id)
      return xml_.error(pci, fmt::format("busid=\"{}\": expected a PCI address",
                                         attribute(pci, "busid").substr(0, 40)));
    REGROUP_ASSIGN_OR_RETURN(const auto width, xml_.number(pci, "link_width", -1, 64, 0));
    const std::string_view speed = attribute(pci, "link_speed");
    const auto transfers = real_number(speed.substr(0, speed.find(' ')), 0, 1024);
    if (!transfers)
      parts_.guesses.push_back(fmt::format("{}: PCIe speed unknown; assuming generation 3", *id));
    const auto lanes = static_cast<std::uint32_t>(std::max<std::int64_t>(width, 0));
    return PciUplink{*id, pci_gbytes(transfers.value_or(0), lanes), lanes};
  }

  base::Status read_pci(const pugi::xml_node& pci) {
    REGROUP_ASSIGN_OR_RETURN(auto link, uplink(pci));
    if (pci.child("pci")) {
      if (!seen_switches_.insert(link.bus_id).second)
        return xml_.error(pci, fmt::format("bus ID {} is listed twice", link.bus_id));
      above_.push_back(std::move(link));
      for (const pugi::xml_node& below : pci.children("pci"))
        REGROUP_RETURN_IF_ERROR(read_pci(below));
      above_.pop_back();
      return {};
    }
    const std::uint32_t pci_class = hex(attribute(pci, "class"));
    if (pci.child("gpu") || is_gpu_class(pci_class)) return read_gpu(pci, link);
    if (pci.child("nic") || is_nic_class(pci_class)) return read_nic(pci, link);
    if (pci_class == 0) unknown_.push_back(device(pci, link));
    return {};
  }

  PciDevice device(const pugi::xml_node& pci, const PciUplink& link) {
    PciDevice out;
    out.link = link;
    out.switches = above_;
    out.numa = numa_;
    out.line = xml_.line(pci);
    return out;
  }

  base::Status read_gpu(const pugi::xml_node& pci, const PciUplink& link) {
    const pugi::xml_node gpu = pci.child("gpu");
    PciDevice out = device(pci, link);
    out.gpu.emplace();
    if (const GpuProduct* product =
            gpu_product(hex(attribute(pci, "vendor")), hex(attribute(pci, "device")))) {
      out.gpu->product = product->name;
      out.gpu->arch = product->arch;
    }
    REGROUP_ASSIGN_OR_RETURN(const auto number, xml_.number(gpu, "dev", 0, 65535, -1));
    REGROUP_ASSIGN_OR_RETURN(const auto sm, xml_.number(gpu, "sm", 0, 65535, 0));
    out.gpu->number = static_cast<int>(number);
    const std::string_view gcn = attribute(gpu, "gcn");
    if (!gcn.empty()) {
      out.gpu->arch = gcn == "910"             ? "gfx90a"
                      : gcn.starts_with("gfx") ? std::string(gcn)
                                               : fmt::format("gfx{}", gcn);
    } else if (sm > 0) {
      out.gpu->arch = fmt::format("sm{}", sm);
    }
    for (const pugi::xml_node& child : gpu.children())
      REGROUP_RETURN_IF_ERROR(read_link(child, link.bus_id));
    parts_.devices.push_back(std::move(out));
    return {};
  }

  base::Status read_link(const pugi::xml_node& node, const std::string& from) {
    const std::string_view name = node.name();
    if (name != "nvlink" && name != "xgmi") return {};
    REGROUP_ASSIGN_OR_RETURN(const auto count, xml_.number(node, "count", 1, 64, 1));
    GpuLink link;
    link.kind = name == "xgmi" ? LinkKind::kXgmi : LinkKind::kNvlink;
    link.from = from;
    link.lanes = static_cast<std::uint32_t>(count);
    link.line = xml_.line(node);
    const std::uint32_t target = hex(attribute(node, "tclass"));
    link.to = target >> 8 == 0x0680                  ? GpuLink::To::kSwitch
              : target != 0 && !is_gpu_class(target) ? GpuLink::To::kProcessor
                                                     : GpuLink::To::kGpu;
    const auto id = bus_id(attribute(node, "target"));
    if (!id && link.to == GpuLink::To::kGpu)
      return xml_.error(node, fmt::format("target=\"{}\": expected a PCI address",
                                          attribute(node, "target").substr(0, 40)));
    link.target = id.value_or("");
    parts_.links.push_back(std::move(link));
    return {};
  }

  base::Status read_nic(const pugi::xml_node& node, const PciUplink& link) {
    PciDevice out = device(node, link);
    const std::uint32_t vendor = hex(attribute(node, "vendor")),
                        card = hex(attribute(node, "device"));
    const bool infiniband = hex(attribute(node, "class")) >> 8 == 0x0207;
    for (const pugi::xml_node& nic : node.children("nic")) {
      for (const pugi::xml_node& net : nic.children("net")) {
        REGROUP_ASSIGN_OR_RETURN(const auto speed, xml_.number(net, "speed", 0, 100'000'000, 0));
        REGROUP_ASSIGN_OR_RETURN(const auto port, xml_.number(net, "port", 0, 255, 1));
        Nic one;
        one.name = attribute(net, "name");
        one.port = static_cast<int>(port);
        one.gbits = static_cast<double>(speed) / 1000;
        one.kind = infiniband                    ? NicKind::kInfiniband
                   : is_efa(vendor, card)        ? NicKind::kEfa
                   : one.name.starts_with("mlx") ? NicKind::kRoce
                                                 : NicKind::kEthernet;
        out.ports.push_back(std::move(one));
      }
    }
    if (out.ports.empty()) {
      Nic one;
      one.name = link.bus_id;
      one.kind = infiniband             ? NicKind::kInfiniband
                 : is_efa(vendor, card) ? NicKind::kEfa
                                        : NicKind::kEthernet;
      one.gbits = nic_product_gbits(vendor, card);
      if (one.gbits == 0) unnamed_.push_back(parts_.devices.size());
      out.ports.push_back(std::move(one));
    }
    if (link.bus_id.empty())
      out.link.gbytes = 5000;  // not on PCIe: only the port's own speed limits it
    parts_.devices.push_back(std::move(out));
    return {};
  }

  // "0001" is a domain, "16" a device of bus 0.
  static bool named(std::string_view names, const std::string& bus_id) {
    for (const std::string_view name : split(names, ' ')) {
      if (bus_id ==
          (name.size() == 4 ? fmt::format("{}:00:00.0", name) : fmt::format("0000:00:{}.0", name)))
        return true;
    }
    return false;
  }

  static std::size_t count(std::string_view names) { return split(names, ' ').size(); }

  // For a published description that does not say what its devices are.
  void know_machine() {
    for (const KnownMachine& known : known_machines()) {
      std::size_t gpus = 0, classless = 0;
      for (const PciDevice& device : parts_.devices)
        gpus += device.gpu && device.gpu->product.empty() && named(known.gpus, device.link.bus_id);
      for (const PciDevice& device : unknown_) classless += named(known.gpus, device.link.bus_id);
      if (gpus + classless != count(known.gpus)) continue;
      parts_.guesses.push_back(fmt::format(
          "recognised by its bus IDs as {}, whose GPUs and NICs are known", known.name));
      if (parts_.name.empty()) parts_.name = known.name;
      take(known);
      return;
    }
  }

  void take(const KnownMachine& known) {
    for (PciDevice& device : unknown_) {
      if (named(known.gpus, device.link.bus_id)) device.gpu.emplace().number = -1;
      if (named(known.nics, device.link.bus_id))
        device.ports.push_back({device.link.bus_id, "", known.nic_kind});
      if (!device.ports.empty()) unnamed_.push_back(parts_.devices.size());
      if (device.gpu || !device.ports.empty()) parts_.devices.push_back(std::move(device));
    }
    const GpuProduct* product = gpu_product(known.vendor, known.device);
    for (PciDevice& device : parts_.devices) {
      if (!device.gpu) continue;
      device.gpu->product = product->name;
      device.gpu->arch = product->arch;
    }
    for (const std::size_t device : unnamed_) {
      for (Nic& port : parts_.devices[device].ports) port.gbits = known.nic_gbits;
    }
  }

  // Numbers GPUs by bus id, as the driver does, if the file does not number them.
  void number_gpus() {
    std::vector<PciDevice*> gpus;
    for (PciDevice& device : parts_.devices) {
      if (device.gpu) gpus.push_back(&device);
    }
    if (std::all_of(gpus.begin(), gpus.end(),
                    [](const PciDevice* device) { return device->gpu->number >= 0; }))
      return;
    std::sort(gpus.begin(), gpus.end(), [](const PciDevice* a, const PciDevice* b) {
      return a->link.bus_id < b->link.bus_id;
    });
    for (std::size_t i = 0; i < gpus.size(); ++i) gpus[i]->gpu->number = static_cast<int>(i);
  }

  const XmlInput& xml_;
  MachineParts parts_;
  int numa_ = 0;
  std::vector<PciUplink> above_;         // the switches around the element being read
  std::set<std::string> seen_switches_;  // their bus ids
  std::vector<PciDevice> unknown_;       // devices without a class
  std::vector<std::size_t> unnamed_;     // indices of NICs of unknown speed
};

}  // namespace

base::Result<Machine> read_nccl_xml(const XmlInput& xml) { return NcclReader(xml).read(); }

}  // namespace regroup::topology
