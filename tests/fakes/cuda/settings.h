// The two variables of fake.h, parsed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fakes/cuda/results.h"

namespace regroup::fakes::cuda {

enum class FaultKind { kNone, kIllegal, kAssert, kEcc, kLost, kHang, kSlow, kOutOfMemory };

struct Fault {
  FaultKind kind = FaultKind::kNone;
  std::uint64_t at = 0;
  std::uint32_t factor = 1;  // of kSlow
};

inline constexpr std::uint32_t kMostDevices = 16;

struct Settings {
  std::uint32_t devices = 1;
  std::string name = "NVIDIA H100 80GB HBM3";
  std::uint64_t memory = 80ULL << 30;
  DeviceUuid uuid = {{0xfa, 0xce, 'r', 'e', 'g', 'r', 'o', 'u', 'p', 0, 0, 0, 0, 0, 0, 0}};
  std::uint32_t driver = 13000;
  bool peers = true;
  bool descriptors = true;
  bool import = true;
  bool mig = false;
  bool wrong_product = false;
  bool wrong_once = false;
  std::string state;
  std::vector<Fault> faults;
};

// Parses the values of both variables; "" is the default. kInvalidArgument names the setting.
[[nodiscard]] base::Result<Settings> parse_settings(std::string_view settings,
                                                    std::string_view faults);

}  // namespace regroup::fakes::cuda
