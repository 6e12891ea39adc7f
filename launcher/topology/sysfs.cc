// /sys/bus/pci/devices (links into the tree of bridges), /sys/class/infiniband, /sys/class/net,
// /sys/class/kfd/kfd/topology, /sys/devices/system/node. A missing file is not an error, since
// kernels differ.
#include "launcher/topology/sysfs.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "launcher/topology/paths.h"
#include "launcher/topology/products.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

namespace fs = std::filesystem;

std::string value(const fs::path& path) {
  auto text = read_text_file(path, std::size_t{1} << 16);
  return text.ok() ? std::string(trimmed(*text)) : std::string();
}

std::uint32_t hex_value(const fs::path& path) {
  const std::string text = value(path);
  std::uint32_t out = 0;
  if (text.starts_with("0x")) std::from_chars(text.data() + 2, text.data() + text.size(), out, 16);
  return out;
}

std::int64_t number_value(const fs::path& path, std::int64_t otherwise) {
  return whole_number(value(path), -1, INT64_MAX).value_or(otherwise);
}

class SysfsReader {
 public:
  explicit SysfsReader(const SysfsRoots& roots)
      : roots_(roots),
        sys_(roots.sys),
        addressed_(roots.addressed ? *roots.addressed : addressed_interfaces()) {}

  MachineParts read() {
    parts_.source = roots_.sys;
    parts_.live = true;
    read_processors();
    read_numas();
    for (const std::string& name : names_in(sys_ / "bus/pci/devices")) read_gpu(name);
    read_cards();
    read_kfd();
    return std::move(parts_);
  }

 private:
  // The first entry is enough: all processors of a machine are alike.
  void read_processors() {
    const auto text = read_text_file(roots_.cpuinfo, std::size_t{64} << 20);
    if (!text.ok()) return;
    const auto field = [&text](std::string_view name) -> std::string_view {
      const std::size_t at = text->find(fmt::format("\n{}\t", name));
      if (at == std::string::npos) return {};
      const std::string_view line =
          std::string_view(*text).substr(at + 1, text->find('\n', at + 1) - at - 1);
      return trimmed(line.substr(std::min(line.find(':'), line.size() - 1) + 1));
    };
    const std::string_view vendor = field("vendor_id");
    parts_.vendor = vendor == "GenuineIntel"                          ? "intel"
                    : vendor == "AuthenticAMD"                        ? "amd"
                    : !field("CPU implementer").empty()               ? "arm"
                    : field("cpu").find("POWER") != std::string::npos ? "power"
                                                                      : "";
    const auto number = [&field](std::string_view name) {
      return static_cast<int>(whole_number(field(name), 0, 65535).value_or(0));
    };
    parts_.numa_gbytes = numa_gbytes(parts_.vendor, number("cpu family"), number("model"));
  }

  void read_numas() {
    const fs::path nodes = sys_ / "devices/system/node";
    for (const std::string& name : names_in(nodes)) {
      const auto number =
          name.starts_with("node") ? whole_number(name.substr(4), 0, kMaxCpu) : std::nullopt;
      if (!number) continue;
      NumaNode numa;
      numa.number = static_cast<int>(*number);
      numa.cpus =
          number_list(value(nodes / name / "cpulist"), kMaxCpu).value_or(std::vector<int>());
      if (!numa.cpus.empty()) numa.package = package_of(numa.cpus[0]);
      parts_.numas.push_back(std::move(numa));
    }
  }

  std::uint32_t package_of(int cpu) const {
    const auto package = number_value(
        sys_ / fmt::format("devices/system/cpu/cpu{}/topology/physical_package_id", cpu), 0);
    return static_cast<std::uint32_t>(std::max<std::int64_t>(package, 0));
  }

  // The greatest speed of the slower end: the present speed may be reduced to save power.
  PciUplink uplink(const std::string& bus) const {
    const fs::path folder = sys_ / "bus/pci/devices" / bus;
    const std::string speed = value(folder / "max_link_speed");
    const auto transfers = real_number(speed.substr(0, speed.find(' ')), 0, 1024);
    const auto lanes = whole_number(value(folder / "max_link_width"), 1, 64);
    if (!transfers || !lanes) return {bus, 0, 0};
    return {bus, pci_gbytes(*transfers, static_cast<std::uint32_t>(*lanes)),
            static_cast<std::uint32_t>(*lanes)};
  }

  // The bus ids on the path to a device's folder, its own last.
  std::vector<std::string> chain_to(const fs::path& folder) const {
    std::error_code error;
    const fs::path real = fs::canonical(folder, error);
    std::vector<std::string> out;
    for (const fs::path& part : real) {
      const std::string name = part;
      if (name.find('.') != std::string::npos && !name.starts_with("pci") && bus_id(name))
        out.push_back(name);
    }
    return out;
  }

  PciDevice device(const std::vector<std::string>& chain) const {
    PciDevice out;
    std::vector<PciUplink> bridges;
    for (std::size_t i = 0; i + 1 < chain.size(); ++i) bridges.push_back(uplink(chain[i]));
    out.link = uplink(chain.back());
    if (!bridges.empty() && bridges.back().gbytes > 0 && bridges.back().gbytes < out.link.gbytes) {
      out.link.gbytes = bridges.back().gbytes;
      out.link.lanes = bridges.back().lanes;
    }
    for (PciUplink& link : bridges) link.bus_id = bus_id(link.bus_id).value_or(link.bus_id);
    out.link.bus_id = bus_id(out.link.bus_id).value_or(out.link.bus_id);
    out.switches = switches_among(bridges);
    out.numa = known_numa(number_value(sys_ / "bus/pci/devices" / chain.back() / "numa_node", -1));
    return out;
  }

  int known_numa(std::int64_t number) const {
    const bool known =
        std::any_of(parts_.numas.begin(), parts_.numas.end(),
                    [number](const NumaNode& numa) { return numa.number == number; });
    return known ? static_cast<int>(number) : -1;
  }

  void read_gpu(const std::string& name) {
    const fs::path folder = sys_ / "bus/pci/devices" / name;
    const std::uint32_t pci = hex_value(folder / "class") >> 8;
    if (pci >> 8 != 0x03 && pci != 0x1200) return;
    const std::uint32_t vendor = hex_value(folder / "vendor");
    if (vendor != pci_vendor::kNvidia && vendor != pci_vendor::kAmd) return;
    const std::vector<std::string> chain = chain_to(folder);
    if (chain.empty()) return;
    PciDevice out = device(chain);
    out.gpu.emplace().number = static_cast<int>(
        std::count_if(parts_.devices.begin(), parts_.devices.end(),
                      [](const PciDevice& other) { return other.gpu.has_value(); }));
    if (const GpuProduct* product = gpu_product(vendor, hex_value(folder / "device"))) {
      out.gpu->product = product->name;
      out.gpu->arch = product->arch;
    }
    parts_.devices.push_back(std::move(out));
  }

  // For each PCI function: its RDMA ports, each with the interface of the same number; else its
  // interfaces.
  void read_cards() {
    // Keyed by the canonical folder of the device.
    std::map<std::string, std::vector<std::string>> interfaces;
    std::map<std::string, std::vector<std::string>> verbs;
    std::error_code error;
    for (const std::string& name : names_in(sys_ / "class/net")) {
      const fs::path real = fs::canonical(sys_ / "class/net" / name / "device", error);
      if (!error) interfaces[real].push_back(name);
    }
    for (const std::string& name : names_in(sys_ / "class/infiniband")) {
      const fs::path real = fs::canonical(sys_ / "class/infiniband" / name / "device", error);
      if (error) continue;
      verbs[real].push_back(name);
      interfaces[real];
    }
    for (const auto& [folder, names] : interfaces) read_card(folder, names, verbs[folder]);
  }

  void read_card(const std::string& folder, const std::vector<std::string>& names,
                 const std::vector<std::string>& verbs) {
    const std::vector<std::string> chain = chain_to(folder);
    PciDevice out;
    if (!chain.empty()) out = device(chain);
    if (chain.empty()) out.link.gbytes = 5000;  // not on PCIe: only the port's speed limits it
    const std::uint32_t vendor = hex_value(fs::path(folder) / "vendor"),
                        card = hex_value(fs::path(folder) / "device");
    for (const std::string& name : verbs) {
      for (const std::string& port : names_in(sys_ / "class/infiniband" / name / "ports"))
        add_port(out, name, port, names, is_efa(vendor, card));
    }
    for (const std::string& name : names) {
      if (!verbs.empty()) break;
      Nic nic;
      nic.name = nic.interface = name;
      nic.gbits = interface_gbits(name);
      nic.up = interface_up(roots_, name);
      nic.addressed = nic.up && addressed_.contains(name);
      out.ports.push_back(std::move(nic));
    }
    if (!out.ports.empty()) parts_.devices.push_back(std::move(out));
  }

  double interface_gbits(const std::string& name) const {
    const std::int64_t megabits = number_value(sys_ / "class/net" / name / "speed", 0);
    return megabits > 0 && megabits < 100'000'000 ? static_cast<double>(megabits) / 1000
                                                  : 0;  // -1: down, or virtio without a speed
  }

  void add_port(PciDevice& out, const std::string& name, const std::string& port,
                const std::vector<std::string>& names, bool efa) const {
    const fs::path folder = sys_ / "class/infiniband" / name / "ports" / port;
    Nic nic;
    nic.name = name;
    nic.port = static_cast<int>(whole_number(port, 1, 255).value_or(1));
    const std::string rate = value(folder / "rate");  // "100 Gb/sec (4X EDR)"
    nic.gbits = real_number(rate.substr(0, rate.find(' ')), 0, 1e5).value_or(0);
    nic.kind = efa                                            ? NicKind::kEfa
               : value(folder / "link_layer") == "InfiniBand" ? NicKind::kInfiniband
                                                              : NicKind::kRoce;
    for (const std::string& interface : names) {
      if (number_value(sys_ / "class/net" / interface / "dev_port", 0) != nic.port - 1) continue;
      nic.interface = interface;
      if (nic.gbits == 0) nic.gbits = interface_gbits(interface);
      break;
    }
    nic.up = port_up(roots_, name, port);
    nic.addressed = !nic.interface.empty() && interface_up(roots_, nic.interface) &&
                    addressed_.contains(nic.interface);
    out.ports.push_back(std::move(nic));
  }

  // AMD's kernel driver (kfd): its nodes are processors and GPUs; io_links of type 11 are xGMI.
  void read_kfd() {
    const fs::path nodes = sys_ / "class/kfd/kfd/topology/nodes";
    std::map<std::string, std::string> bus_of;  // kfd node -> bus id
    for (const std::string& node : names_in(nodes)) {
      const auto words = properties(nodes / node / "properties");
      const std::int64_t location = words.count("location_id") != 0 ? words.at("location_id") : 0;
      if (words.count("simd_count") == 0 || words.at("simd_count") == 0) continue;
      const std::int64_t domain = words.count("domain") != 0 ? words.at("domain") : 0;
      bus_of[node] = fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, location >> 8 & 0xFF,
                                 location >> 3 & 0x1F, location & 7);
      name_arch(bus_of[node],
                words.count("gfx_target_version") != 0 ? words.at("gfx_target_version") : 0);
      name_uuid(bus_of[node], value(nodes / node / "properties"));
    }
    drop_shared_uuids();
    for (const auto& [node, bus] : bus_of) {
      for (const std::string& link : names_in(nodes / node / "io_links")) {
        const auto words = properties(nodes / node / "io_links" / link / "properties");
        add_xgmi(bus, words, bus_of);
      }
    }
  }

  static std::map<std::string, std::int64_t> properties(const fs::path& file) {
    std::map<std::string, std::int64_t> out;
    const std::string text = value(file);
    for (const std::string_view line : split(text, '\n')) {
      const auto words = split(line, ' ');
      if (words.size() == 2)
        out[std::string(words[0])] = whole_number(words[1], 0, INT64_MAX).value_or(0);
    }
    return out;
  }

  // 90402 is gfx942, 90010 gfx90a.
  void name_arch(const std::string& bus, std::int64_t version) {
    for (PciDevice& device : parts_.devices) {
      if (device.link.bus_id == bus && device.gpu && version > 0)
        device.gpu->arch =
            fmt::format("gfx{}{:x}{:x}", version / 10000, version / 100 % 100, version % 100);
    }
  }

  // ROCr's uuid: "GPU-" and the kernel's unique_id in 16 hexadecimal digits. 0: the card has none.
  void name_uuid(const std::string& bus, const std::string& properties) {
    constexpr std::string_view kName = "unique_id ";
    std::uint64_t id = 0;
    for (const std::string_view line : split(properties, '\n')) {
      if (!line.starts_with(kName)) continue;
      const auto [end, error] =
          std::from_chars(line.data() + kName.size(), line.data() + line.size(), id);
      if (error != std::errc() || end != line.data() + line.size()) id = 0;
    }
    for (PciDevice& device : parts_.devices) {
      if (id != 0 && device.gpu && device.link.bus_id == bus)
        device.gpu->uuid = fmt::format("GPU-{:016x}", id);
    }
  }

  // The partitions of one card may share a uuid, which then identifies none of them.
  void drop_shared_uuids() {
    std::map<std::string, int> seen;
    for (const PciDevice& device : parts_.devices) {
      if (device.gpu) ++seen[device.gpu->uuid];
    }
    for (PciDevice& device : parts_.devices) {
      if (device.gpu && seen[device.gpu->uuid] > 1) device.gpu->uuid.clear();
    }
  }

  void add_xgmi(const std::string& from, const std::map<std::string, std::int64_t>& words,
                const std::map<std::string, std::string>& bus_of) {
    constexpr std::int64_t kXgmi = 11, kOneLink = 50'000;  // MB/s
    const auto type = words.find("type"), to = words.find("node_to"),
               width = words.find("max_bandwidth");
    if (type == words.end() || type->second != kXgmi || to == words.end()) return;
    const auto target = bus_of.find(std::to_string(to->second));
    if (target == bus_of.end()) return;  // the target is a processor
    const std::int64_t links = width == words.end() ? 1 : width->second / kOneLink;
    parts_.links.push_back({LinkKind::kXgmi, from, GpuLink::To::kGpu, target->second,
                            static_cast<std::uint32_t>(std::clamp<std::int64_t>(links, 1, 16)), 0});
  }

  const SysfsRoots& roots_;
  const fs::path sys_;
  const std::set<std::string> addressed_;
  MachineParts parts_;
};

}  // namespace

std::set<std::string> addressed_interfaces() {
  std::set<std::string> out;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return out;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const auto* six = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
    const bool far =
        one->ifa_addr->sa_family == AF_INET ||
        (one->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr));
    if (far) out.insert(one->ifa_name);
  }
  ::freeifaddrs(all);
  return out;
}

bool interface_up(const SysfsRoots& roots, const std::string& interface) {
  const std::string state = value(fs::path(roots.sys) / "class/net" / interface / "operstate");
  return state.empty() || state == "up" || state == "unknown";  // some drivers do not report it
}

// "4: ACTIVE", "5: ACTIVE_DEFER"; a port in INIT waits for its subnet manager.
bool port_up(const SysfsRoots& roots, const std::string& device, const std::string& port) {
  const std::string state =
      value(fs::path(roots.sys) / "class/infiniband" / device / "ports" / port / "state");
  return state.empty() || state.find("ACTIVE") != std::string::npos;
}

MachineParts read_sysfs(const SysfsRoots& roots) { return SysfsReader(roots).read(); }

}  // namespace regroup::topology
