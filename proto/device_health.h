// What a member has found of its GPU before it is ready. docs/design/health.md.
#pragma once

#include <string>
#include <vector>

namespace regroup::proto {

struct DeviceHealth {
  std::string gpu;   // UUID: "GPU-..." or, of a MIG instance, "MIG-..."
  std::string chip;  // "NVIDIA H100 80GB HBM3"
  // Why no member may use it: "GPU 0: the fixed product has wrong bits ...". Empty: it is healthy.
  std::vector<std::string> faults = {};
  bool operator==(const DeviceHealth&) const = default;
};

}  // namespace regroup::proto
