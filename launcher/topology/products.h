// What is known of products, for sources that do not say it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "launcher/topology/machine.h"

namespace regroup::topology {

namespace pci_vendor {  // vendor ids of PCI
inline constexpr std::uint32_t kNvidia = 0x10de, kAmd = 0x1002, kAmazon = 0x1d0f,
                               kMellanox = 0x15b3;
}

struct GpuProduct {
  std::uint32_t vendor, device;  // of PCI
  std::string_view name, arch;
  std::uint32_t nvlinks;  // of one GPU
  bool nvswitch;          // on boards of 8 and 16 all links go to NVSwitches
};

// nullptr: not known.
[[nodiscard]] const GpuProduct* gpu_product(std::uint32_t vendor, std::uint32_t device);
// As NVML and nvidia-smi say it.
[[nodiscard]] const GpuProduct* gpu_product(std::string_view name);

// Machines whose published description leaves out what their GPUs and NICs are, known by bus ids.
struct KnownMachine {
  std::string_view name;
  std::string_view gpus;  // domains, or buses, of all GPUs in ascending order, with blanks between
  std::uint32_t vendor, device;
  std::string_view nics;  // the same; "": those that the file says are NICs
  NicKind nic_kind;
  double nic_gbits;
};

[[nodiscard]] std::span<const KnownMachine> known_machines();

// Gb/s at most of a network card; 0: not known.
[[nodiscard]] double nic_product_gbits(std::uint32_t vendor, std::uint32_t device);

[[nodiscard]] bool is_efa(std::uint32_t vendor, std::uint32_t device);

}  // namespace regroup::topology
