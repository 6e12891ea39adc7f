// What NVML knows of a GPU that no member may use. docs/design/health.md.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"

namespace regroup::elastic {

// `uuid`: of a whole GPU, "GPU-...". The driver asks for a reset of the GPU or a reboot of the
// host, or a remap of a memory row failed; other facts may pass by themselves. Waits at most
// `wait`: the thread that asks is left behind then. Empty: there is no such fact, no library, or no
// answer.
[[nodiscard]] std::vector<std::string> nvml_faults(const std::string& uuid, base::Duration wait);

}  // namespace regroup::elastic
