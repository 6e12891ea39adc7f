// Known properties of products, for sources that do not give them.
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
  // PCI ids.
  std::uint32_t vendor;
  std::uint32_t device;
  std::string_view name;
  std::string_view arch;
  std::uint32_t nvlinks;  // per GPU
  bool nvswitch;          // on boards of 8 and 16 GPUs all links go to NVSwitches
};

// Finds a product by its PCI ids; nullptr: unknown.
[[nodiscard]] const GpuProduct* gpu_product(std::uint32_t vendor, std::uint32_t device);
// Finds a product by its name in NVML and nvidia-smi; nullptr: unknown.
[[nodiscard]] const GpuProduct* gpu_product(std::string_view name);

// A machine whose published description does not say what its GPUs and NICs are; recognised by the
// bus ids.
struct KnownMachine {
  std::string_view name;
  std::string_view gpus;  // PCI domains or buses of all GPUs, ascending, separated by blanks
  std::uint32_t vendor;
  std::uint32_t device;
  std::string_view nics;  // likewise for NICs; "": the file says which devices are NICs
  NicKind nic_kind;
  double nic_gbits;
};

[[nodiscard]] std::span<const KnownMachine> known_machines();

// Greatest speed of a network card in Gb/s; 0: unknown.
[[nodiscard]] double nic_product_gbits(std::uint32_t vendor, std::uint32_t device);

[[nodiscard]] bool is_efa(std::uint32_t vendor, std::uint32_t device);

}  // namespace regroup::topology
