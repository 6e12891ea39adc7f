// A library of its own, apart from the launcher's reader: members are other processes.
#include "elastic/nvml_faults.h"

#include <dlfcn.h>

#include <memory>

#include "base/detached_call.h"
#include "base/nvml_abi.h"

namespace regroup::elastic {
namespace {

using namespace base::nvml_abi;  // NOLINT(google-build-using-namespace): a table of declarations

// Never closed: the library has threads of its own.
template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

std::string recovery(const Functions& f, Device device) {
  FieldValue action{};
  action.field = kRecoveryAction;
  if (f.field_values(device, 1, &action) != 0 || action.result != 0) return "";
  switch (action.value.whole) {
    case kResetGpu:
      return "the driver asks for a reset of the GPU";
    case kRebootHost:
      return "the driver asks for a reboot of the host";
    case kDrainAndReset:
      return "the driver asks for an end of all work and a reset of the GPU";
    default:
      return "";
  }
}

void read(const std::string& uuid, std::vector<std::string>& out) {
  void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  Functions f;
  Device device = nullptr;
  if (library == nullptr || !find(library, "nvmlInit_v2", f.init) ||
      !find(library, "nvmlDeviceGetHandleByUUID", f.by_uuid) || f.init() != 0 ||
      f.by_uuid(uuid.c_str(), &device) != 0)
    return;
  if (find(library, "nvmlDeviceGetFieldValues", f.field_values))
    if (std::string fault = recovery(f, device); !fault.empty()) out.push_back(std::move(fault));
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (find(library, "nvmlDeviceGetRemappedRows", f.remapped_rows) &&
      f.remapped_rows(device, &corrected, &uncorrected, &pending, &failed) == 0 && failed != 0)
    out.emplace_back("a remap of a memory row failed");
}

}  // namespace

std::vector<std::string> nvml_faults(const std::string& uuid, base::Duration wait) {
  const auto found = std::make_shared<std::vector<std::string>>();
  const auto asked = base::call_detached([uuid, found] {
    read(uuid, *found);
    return base::Status();
  });
  if (asked.wait_for(wait) != std::future_status::ready) return {};
  return std::move(*found);
}

}  // namespace regroup::elastic
