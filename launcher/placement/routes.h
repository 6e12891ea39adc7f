// The load that traffic between two ends of a machine puts on its links. Rows are the machine's
// links and, after them, the ports of its NICs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launcher/placement/packing_lp.h"
#include "launcher/topology/machine.h"

namespace regroup::placement {

class Routes {
 public:
  // `machine` must outlive this.
  explicit Routes(const topology::Machine& machine);

  [[nodiscard]] const topology::Machine& machine() const { return machine_; }
  [[nodiscard]] std::size_t rows() const { return capacity_.size(); }
  // GB/s each way.
  [[nodiscard]] double capacity(std::uint32_t row) const { return capacity_[row]; }
  // The loads of 1 GB/s from one end of Machine::paths to another, including the port of a NIC.
  // Empty: they are not connected.
  [[nodiscard]] std::span<const Use> between(std::uint32_t from, std::uint32_t to) const {
    const std::size_t at = from * ends_ + to;
    return std::span(uses_).subspan(starts_[at], starts_[at + 1] - starts_[at]);
  }
  // "the PCIe link of GPU 3", "the wire of mlx5_0".
  [[nodiscard]] std::string name(std::uint32_t row) const;

 private:
  void append(const topology::Path& path, std::uint32_t from, std::uint32_t to);

  const topology::Machine& machine_;
  std::uint32_t ends_ = 0;
  std::vector<double> capacity_;
  std::vector<Use> uses_;
  std::vector<std::uint32_t> starts_;
};

}  // namespace regroup::placement
