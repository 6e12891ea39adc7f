// Loads NVML and reads GPUs. Values that an older driver does not have are left at their defaults.
#include "launcher/topology/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <chrono>

#include "base/nvml_abi.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

using namespace base::nvml_abi;  // NOLINT(google-build-using-namespace): a table of declarations

constexpr unsigned kMostLinks = 36;  // NVML_NVLINK_MAX_LINKS of the newest version

template <class F>
bool find(void* handle, const char* name, F& out) {
  out = reinterpret_cast<F>(::dlsym(handle, name));
  return out != nullptr;
}

// The name of the first required function that is missing.
const char* find_all(void* handle, Functions& f) {
  if (!find(handle, "nvmlInit_v2", f.init)) return "nvmlInit_v2";
  if (!find(handle, "nvmlShutdown", f.shutdown)) return "nvmlShutdown";
  if (!find(handle, "nvmlErrorString", f.error)) return "nvmlErrorString";
  if (!find(handle, "nvmlDeviceGetCount_v2", f.count)) return "nvmlDeviceGetCount_v2";
  if (!find(handle, "nvmlDeviceGetHandleByIndex_v2", f.by_index))
    return "nvmlDeviceGetHandleByIndex_v2";
  if (!find(handle, "nvmlDeviceGetHandleByUUID", f.by_uuid)) return "nvmlDeviceGetHandleByUUID";
  if (!find(handle, "nvmlDeviceGetPciInfo_v3", f.pci)) return "nvmlDeviceGetPciInfo_v3";
  if (!find(handle, "nvmlDeviceGetName", f.name)) return "nvmlDeviceGetName";
  if (!find(handle, "nvmlDeviceGetUUID", f.uuid)) return "nvmlDeviceGetUUID";
  if (!find(handle, "nvmlDeviceGetMemoryInfo", f.memory)) return "nvmlDeviceGetMemoryInfo";
  if (!find(handle, "nvmlDeviceGetCudaComputeCapability", f.capability))
    return "nvmlDeviceGetCudaComputeCapability";
  if (!find(handle, "nvmlDeviceGetNvLinkState", f.link_state)) return "nvmlDeviceGetNvLinkState";
  if (!find(handle, "nvmlDeviceGetNvLinkRemotePciInfo_v2", f.link_remote))
    return "nvmlDeviceGetNvLinkRemotePciInfo_v2";
  find(handle, "nvmlDeviceGetNvLinkRemoteDeviceType", f.link_type);
  find(handle, "nvmlDeviceGetMigMode", f.mig_mode);
  find(handle, "nvmlDeviceGetMaxMigDeviceCount", f.mig_count);
  find(handle, "nvmlDeviceGetMigDeviceHandleByIndex", f.mig_by_index);
  find(handle, "nvmlDeviceGetUtilizationRates", f.utilization);
  find(handle, "nvmlDeviceGetPowerUsage", f.power);
  find(handle, "nvmlDeviceGetComputeRunningProcesses_v3", f.processes);
  find(handle, "nvmlDeviceGetProcessUtilization", f.process_utilization);
  find(handle, "nvmlDeviceGetTotalEccErrors", f.ecc_errors);
  find(handle, "nvmlDeviceGetRemappedRows", f.remapped_rows);
  find(handle, "nvmlDeviceGetFieldValues", f.field_values);
  if (!find(handle, "nvmlDeviceGetCurrentClocksEventReasons", f.clock_reasons))
    find(handle, "nvmlDeviceGetCurrentClocksThrottleReasons", f.clock_reasons);
  return nullptr;
}

std::string text_of(Return (*get)(Device, char*, unsigned), Device device) {
  std::array<char, 96> buffer{};
  return get(device, buffer.data(), buffer.size() - 1) == 0 ? std::string(buffer.data())
                                                            : std::string();
}

// "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
std::string profile_of(const std::string& name) {
  const std::size_t at = name.find("MIG ");
  return at == std::string::npos ? name : name.substr(at + 4);
}

bool is_divided(const Functions& f, Device device) {
  unsigned now = 0, later = 0;
  return f.mig_mode != nullptr && f.mig_mode(device, &now, &later) == 0 && now != 0;
}

std::vector<MigSlice> mig_slices(const Functions& f, Device device) {
  std::vector<MigSlice> out;
  unsigned count = 0;
  if (f.mig_count == nullptr || f.mig_by_index == nullptr || f.mig_count(device, &count) != 0)
    return out;
  for (unsigned i = 0; i < count && i < 64; ++i) {
    Device slice = nullptr;
    if (f.mig_by_index(device, i, &slice) != 0) continue;
    out.push_back({text_of(f.uuid, slice), profile_of(text_of(f.name, slice))});
    if (Memory memory{}; f.memory(slice, &memory) == 0) out.back().memory_bytes = memory.total;
  }
  return out;
}

// PCI device and vendor ids of the NVSwitches of V100, A100 and H100 boards, for drivers that do
// not report the type of a link's other end.
bool is_nvswitch(unsigned pci_device_id) {
  return pci_device_id == 0x1ac210de || pci_device_id == 0x1af110de || pci_device_id == 0x22a310de;
}

void add_links(const Functions& f, Device device, const std::string& from,
               std::vector<GpuLink>& out) {
  for (unsigned i = 0; i < kMostLinks; ++i) {
    unsigned active = 0, type = kToGpu;
    PciInfo remote{};
    if (f.link_state(device, i, &active) != 0 || active == 0 ||
        f.link_remote(device, i, &remote) != 0)
      continue;
    if (f.link_type == nullptr || f.link_type(device, i, &type) != 0)
      type = is_nvswitch(remote.pci_device_id) ? kToSwitch : kToGpu;
    GpuLink link;
    link.from = from;
    link.to = type == kToSwitch ? GpuLink::To::kSwitch
              : type == kToNpu  ? GpuLink::To::kProcessor
                                : GpuLink::To::kGpu;
    link.target = bus_id(remote.bus_id).value_or("");
    out.push_back(std::move(link));
  }
}

// The processes that compute on `device`, with how busy each kept it in the last second.
std::vector<GpuProcess> processes_on(const Functions& f, Device device) {
  constexpr unsigned long long kNotAvailable = ~0ull;
  constexpr unsigned kMost = 1024;
  std::vector<ProcessInfo> infos(kMost);
  unsigned count = kMost;
  if (f.processes == nullptr || f.processes(device, &count, infos.data()) != 0) return {};
  std::vector<GpuProcess> out;
  for (unsigned i = 0; i < count && i < kMost; ++i) {
    GpuProcess& process = out.emplace_back();
    process.pid = infos[i].pid;
    if (infos[i].used_memory != kNotAvailable) process.memory_used = infos[i].used_memory;
  }
  std::vector<ProcessUtilization> samples(kMost);
  count = kMost;
  const auto second_ago =
      std::chrono::system_clock::now().time_since_epoch() - std::chrono::seconds(1);
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(second_ago).count();
  if (f.process_utilization == nullptr ||
      f.process_utilization(device, samples.data(), &count,
                            static_cast<unsigned long long>(since)) != 0)
    return out;  // NVML_ERROR_NOT_FOUND: nothing ran
  for (GpuProcess& process : out) {
    unsigned total = 0;
    unsigned found = 0;
    for (unsigned i = 0; i < count && i < kMost; ++i) {
      if (samples[i].pid != process.pid || samples[i].sm > 100) continue;
      total += samples[i].sm;
      ++found;
    }
    if (found > 0) process.busy_percent = static_cast<int>(total / found);
  }
  return out;
}

// What the driver asks for; drivers before 570 ask for nothing.
std::string recovery_of(const Functions& f, Device device) {
  constexpr std::array kActions = {"", "a reset of the GPU", "a reboot of the host",
                                   "an end of peer-to-peer traffic",
                                   "an end of all work and a reset of the GPU"};
  FieldValue action{};
  action.field = kRecoveryAction;
  if (f.field_values == nullptr || f.field_values(device, 1, &action) != 0 || action.result != 0 ||
      action.value.whole == 0)
    return "";
  return action.value.whole < kActions.size()
             ? fmt::format("the driver asks for {}", kActions[action.value.whole])
             : fmt::format("the driver asks for recovery action {}", action.value.whole);
}

std::vector<std::string> faults_of(const Functions& f, Device device) {
  std::vector<std::string> out;
  if (std::string recovery = recovery_of(f, device); !recovery.empty())
    out.push_back(std::move(recovery));
  if (unsigned long long errors = 0;
      f.ecc_errors != nullptr &&
      f.ecc_errors(device, kUncorrected, kSinceDriverLoaded, &errors) == 0 && errors > 0)
    out.push_back(fmt::format("{} uncorrectable ECC error{} since the driver was loaded", errors,
                              errors == 1 ? "" : "s"));
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (f.remapped_rows != nullptr &&
      f.remapped_rows(device, &corrected, &uncorrected, &pending, &failed) == 0) {
    if (failed != 0) out.emplace_back("a remap of a memory row failed");
    if (pending != 0) out.emplace_back("a remap of a memory row waits for a reset of the GPU");
  }
  if (unsigned long long reasons = 0;
      f.clock_reasons != nullptr && f.clock_reasons(device, &reasons) == 0) {
    if ((reasons & kThermalSlowdown) != 0) out.emplace_back("too hot: its clocks are slowed down");
    if ((reasons & kPowerBrake) != 0)
      out.emplace_back("the power supply brakes it: its clocks are slowed down");
  }
  return out;
}

}  // namespace

struct Nvml::Library {
  void* handle = nullptr;
  bool started = false;
  Functions f;

  ~Library() {
    if (started) f.shutdown();
    if (handle != nullptr) ::dlclose(handle);
  }
  [[nodiscard]] base::Status failed(std::string_view call, Return code) const {
    return base::unavailable(fmt::format("{}: {}", call, f.error(code)));
  }
};

Nvml::Nvml(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Nvml::Nvml(Nvml&&) noexcept = default;
Nvml& Nvml::operator=(Nvml&&) noexcept = default;
Nvml::~Nvml() = default;

base::Result<Nvml> Nvml::open(const std::string& library) {
  auto out = std::make_unique<Library>();
  out->handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (out->handle == nullptr) return base::unavailable(::dlerror());
  if (const char* missing = find_all(out->handle, out->f))
    return base::unavailable(fmt::format("{}: function {} is missing", library, missing));
  if (const Return code = out->f.init(); code != 0) return out->failed("nvmlInit", code);
  out->started = true;
  return Nvml(std::move(out));
}

base::Result<Nvml::Found> Nvml::gpus() const {
  const Functions& f = library_->f;
  unsigned count = 0;
  if (const Return code = f.count(&count); code != 0)
    return library_->failed("nvmlDeviceGetCount", code);
  Found out;
  for (unsigned i = 0; i < count && i < kMaxEnds; ++i) {
    Device device = nullptr;
    PciInfo pci{};
    if (f.by_index(i, &device) != 0 || f.pci(device, &pci) != 0)
      continue;  // the GPU has fallen off the bus
    Gpu gpu;
    gpu.number = static_cast<int>(i);
    gpu.bus_id = bus_id(pci.bus_id).value_or("");
    gpu.uuid = text_of(f.uuid, device);
    gpu.product = text_of(f.name, device);
    int major = 0, minor = 0;
    if (f.capability(device, &major, &minor) == 0) gpu.arch = fmt::format("sm{}{}", major, minor);
    if (Memory memory{}; f.memory(device, &memory) == 0) gpu.memory_bytes = memory.total;
    if (is_divided(f, device)) {  // in MIG mode NVLinks are not used
      out.divided.push_back(gpu.bus_id);
      gpu.mig = mig_slices(f, device);
    } else {
      add_links(f, device, gpu.bus_id, out.links);
    }
    out.gpus.push_back(std::move(gpu));
  }
  return out;
}

base::Result<GpuSample> Nvml::sample(const std::string& uuid) const {
  const Functions& f = library_->f;
  Device device = nullptr;
  if (f.by_uuid(uuid.c_str(), &device) != 0)
    return base::not_found(fmt::format("GPU {} does not exist", uuid));
  GpuSample out;
  out.uuid = uuid;
  if (Utilization busy{}; f.utilization != nullptr && f.utilization(device, &busy) == 0)
    out.busy_percent = static_cast<int>(busy.gpu);
  if (Memory memory{}; f.memory(device, &memory) == 0) {
    out.memory_used = memory.used;
    out.memory_total = memory.total;
  }
  if (unsigned milliwatts = 0; f.power != nullptr && f.power(device, &milliwatts) == 0)
    out.watts = milliwatts / 1000.0;
  out.processes = processes_on(f, device);
  out.faults = faults_of(f, device);
  return out;
}

}  // namespace regroup::topology
