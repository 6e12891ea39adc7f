// A libnvidia-ml.so.1 for tests of health checks: every UUID is that of a GPU, which is healthy
// unless REGROUP_FAKE_NVML says otherwise: rows "UUID NAME=NUMBER", separated by ';'. Names: action
// (recovery action of the driver), ecc (uncorrectable errors), pending and failed (remaps of rows),
// hang (no answer).
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>

#include "base/nvml_abi.h"

namespace {

using namespace regroup::base::nvml_abi;  // NOLINT(google-build-using-namespace): as in nvml.cc

constexpr Return kNotSupported = 3;

// A device is a pointer to its UUID. They stay.
Device device_of(const char* uuid) {
  static std::mutex mutex;
  static auto* all = new std::deque<std::string>;
  const std::lock_guard lock(mutex);
  for (std::string& known : *all)
    if (known == uuid) return reinterpret_cast<Device>(&known);
  return reinterpret_cast<Device>(&all->emplace_back(uuid));
}

unsigned setting(Device device, std::string_view name) {
  const char* const variable = std::getenv("REGROUP_FAKE_NVML");
  const std::string row = *reinterpret_cast<std::string*>(device) + " " + std::string(name) + "=";
  const std::string_view rows = variable == nullptr ? "" : variable;
  const std::size_t at = rows.find(row);
  if (at == std::string_view::npos) return 0;
  return static_cast<unsigned>(
      std::strtoul(std::string(rows.substr(at + row.size())).c_str(), nullptr, 10));
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are NVML's
extern "C" {
#define FAKE __attribute__((visibility("default")))

FAKE Return nvmlInit_v2() { return 0; }
FAKE Return nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
  *device = device_of(uuid);
  while (setting(*device, "hang") != 0) ::pause();
  return 0;
}
FAKE Return nvmlDeviceGetRemappedRows(Device device, unsigned* corrected, unsigned* uncorrected,
                                      unsigned* pending, unsigned* failed) {
  *corrected = 0;
  *uncorrected = setting(device, "ecc");
  *pending = setting(device, "pending");
  *failed = setting(device, "failed");
  return 0;
}
FAKE Return nvmlDeviceGetFieldValues(Device device, int count, FieldValue* values) {
  for (int i = 0; i < count; ++i) {
    values[i].result = values[i].field == kRecoveryAction ? 0 : kNotSupported;
    values[i].value.whole = setting(device, "action");
  }
  return 0;
}
}
// NOLINTEND(readability-identifier-naming)
