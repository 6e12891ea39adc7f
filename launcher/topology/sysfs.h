// What Linux says of a machine's devices, below a root that may be a recorded tree.
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
  std::optional<std::set<std::string>> addressed;  // instead of addressed_interfaces()
};

// Network interfaces of this process's network that have an address which other hosts can reach:
// IPv4, or IPv6 that is not of the link alone.
[[nodiscard]] std::set<std::string> addressed_interfaces();

// Whether an interface (operstate), a port of an RDMA device (state) below the root is up; true if
// no file says so.
[[nodiscard]] bool interface_up(const SysfsRoots& roots, const std::string& interface);
[[nodiscard]] bool port_up(const SysfsRoots& roots, const std::string& device,
                           const std::string& port);

// NUMA nodes, GPUs with their place on PCIe, AMD's xGMI (kfd), network cards: InfiniBand, RoCE, EFA
// and Ethernet with speed, NUMA node and whether they are up. What a file does not say is left as
// not known: there is always an answer.
[[nodiscard]] MachineParts read_sysfs(const SysfsRoots& roots);

}  // namespace regroup::topology
