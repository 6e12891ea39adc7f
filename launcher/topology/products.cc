// Tables: NVLinks by product from NVIDIA's data sheets, PCI ids from pci.ids, machines from the
// files named.
#include "launcher/topology/products.h"

#include <algorithm>
#include <iterator>

namespace regroup::topology {
namespace {

using pci_vendor::kAmd, pci_vendor::kNvidia;

constexpr GpuProduct kGpus[] = {
    {kNvidia, 0x15f9, "P100-SXM2-16GB", "sm60", 4, false},
    {kNvidia, 0x1db1, "V100-SXM2-16GB", "sm70", 6, false},
    {kNvidia, 0x1db5, "V100-SXM2-32GB", "sm70", 6, false},
    {kNvidia, 0x1db8, "V100-SXM3-32GB", "sm70", 6, true},
    {kNvidia, 0x1db4, "V100-PCIE-16GB", "sm70", 0, false},
    {kNvidia, 0x1db6, "V100-PCIE-32GB", "sm70", 0, false},
    {kNvidia, 0x1eb8, "T4", "sm75", 0, false},
    {kNvidia, 0x20b0, "A100-SXM4-40GB", "sm80", 12, true},
    {kNvidia, 0x20b2, "A100-SXM4-80GB", "sm80", 12, true},
    {kNvidia, 0x20b5, "A100 80GB PCIe", "sm80", 12, false},
    {kNvidia, 0x20f1, "A100-PCIE-40GB", "sm80", 12, false},
    {kNvidia, 0x2237, "A10G", "sm86", 0, false},
    {kNvidia, 0x2330, "H100 80GB HBM3", "sm90", 18, true},
    {kNvidia, 0x2331, "H100 PCIe", "sm90", 18, false},
    {kNvidia, 0x2335, "H200", "sm90", 18, true},
    {kNvidia, 0x2901, "B200", "sm100", 18, true},
    {kNvidia, 0x2941, "GB200", "sm100", 18, true},
    {kAmd, 0x66a1, "MI50", "gfx906", 0, false},
    {kAmd, 0x738c, "MI100", "gfx908", 0, false},
    {kAmd, 0x7408, "MI250X", "gfx90a", 0, false},
    {kAmd, 0x740c, "MI250", "gfx90a", 0, false},
    {kAmd, 0x740f, "MI210", "gfx90a", 0, false},
    {kAmd, 0x74a0, "MI300A", "gfx942", 0, false},
    {kAmd, 0x74a1, "MI300X", "gfx942", 0, false},
};

constexpr KnownMachine kMachines[] = {
    // Azure/azhpc-images topology/ndv2-topo.xml: V100 of a cube mesh, but which one is which is not
    // published.
    {"Azure ND v2", "0001 0002 0003 0004 0005 0006 0007 0008", kNvidia, 0x1db5, "",
     NicKind::kInfiniband, 100},
    {"Azure ND A100 v4", "0001 0002 0003 0004 000b 000c 000d 000e", kNvidia, 0x20b0, "",
     NicKind::kInfiniband, 200},
    {"Azure ND H100 v5", "0001 0002 0003 0008 0009 000a 000b 000c", kNvidia, 0x2330, "",
     NicKind::kInfiniband, 400},
    // aws/aws-ofi-nccl topology/g5.48xl-topo.xml: bus ids and nothing else.
    {"AWS g5.48xlarge", "16 17 18 19 1a 1b 1c 1d", kNvidia, 0x2237, "15", NicKind::kEfa, 100},
};

}  // namespace

const GpuProduct* gpu_product(std::uint32_t vendor, std::uint32_t device) {
  const auto* found =
      std::find_if(std::begin(kGpus), std::end(kGpus), [=](const GpuProduct& product) {
        return product.vendor == vendor && product.device == device;
      });
  return found == std::end(kGpus) ? nullptr : found;
}

const GpuProduct* gpu_product(std::string_view name) {
  const GpuProduct* best = nullptr;  // longest match: "H100 PCIe" is not "H100 80GB HBM3"
  for (const GpuProduct& product : kGpus) {
    if (name.find(product.name) == std::string_view::npos) continue;
    if (best == nullptr || product.name.size() > best->name.size()) best = &product;
  }
  return best;
}

std::span<const KnownMachine> known_machines() { return kMachines; }

bool is_efa(std::uint32_t vendor, std::uint32_t device) {
  return vendor == pci_vendor::kAmazon && device >= 0xefa0 && device <= 0xefaf;
}

double nic_product_gbits(std::uint32_t vendor, std::uint32_t device) {
  if (vendor == pci_vendor::kMellanox) {
    switch (device) {
      case 0x1013:
      case 0x1017:
        return 100;  // ConnectX-4, -5
      case 0x101b:
        return 200;  // ConnectX-6
      case 0x1021:
        return 400;  // ConnectX-7
      default:
        return 0;
    }
  }
  if (!is_efa(vendor, device)) return 0;
  return device <= 0xefa1 ? 100 : device == 0xefa2 ? 200 : 0;
}

}  // namespace regroup::topology
