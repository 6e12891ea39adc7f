// Reads a machine's devices from Linux's sysfs, or from a recorded copy of it.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "launcher/topology/machine_builder.h"

namespace regroup::topology {

struct SysfsRoots {
  std::string sys = "/sys";
  std::string cpuinfo = "/proc/cpuinfo";
  std::string dev = "/dev";
  std::string nvidia = "/proc/driver/nvidia";
  std::optional<std::set<std::string>> addressed;  // used instead of addressed_interfaces()
};

// The network interfaces in this process's network namespace with an address that other hosts can
// reach: IPv4, or IPv6 that is not link-local.
[[nodiscard]] std::set<std::string> addressed_interfaces();

// True if an interface (operstate) or a port of an RDMA device (state) is up, or if no file says.
[[nodiscard]] bool interface_up(const SysfsRoots& roots, const std::string& interface);
[[nodiscard]] bool port_up(const SysfsRoots& roots, const std::string& device,
                           const std::string& port);

// Reads NUMA nodes, GPUs with their place on PCIe, AMD's xGMI (kfd), and network cards (InfiniBand,
// RoCE, EFA, Ethernet) with speed, NUMA node and whether they are up. Never fails: a property
// without a file stays unknown.
[[nodiscard]] MachineParts read_sysfs(const SysfsRoots& roots);

}  // namespace regroup::topology
