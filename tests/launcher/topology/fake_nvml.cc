// A libnvidia-ml.so for tests: five GPUs. 0 and 1 are joined by two links, the others have two to
// an NVSwitch and one that is down, 3 is divided by MIG, 4 is in MIG mode without a device.
#include <cstdio>
#include <cstring>

extern "C" {
#define FAKE __attribute__((visibility("default")))

struct Pci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};
struct Memory {
  unsigned long long total, free, used;
};
struct Busy {
  unsigned gpu, memory;
};

// A device is a pointer to its number; MIG slices are 100 and 101.
static int numbers[] = {0, 1, 2, 3, 4, 100, 101};
static int number(void* device) { return *static_cast<int*>(device); }
static const char* const kBus[] = {"00000000:1A:00.0", "00000000:1B:00.0", "00000000:3D:00.0",
                                   "00000000:3E:00.0", "00000000:3F:00.0"};

FAKE int nvmlInit_v2() { return 0; }
FAKE int nvmlShutdown() { return 0; }
FAKE const char* nvmlErrorString(int code) { return code == 0 ? "Success" : "Not Found"; }
FAKE int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 5, 0; }
FAKE int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  return *device = &numbers[index], 0;
}
FAKE int nvmlDeviceGetPciInfo_v3(void* device, Pci* pci) {
  return std::strcpy(pci->bus_id, kBus[number(device)]), 0;
}
FAKE int nvmlDeviceGetName(void* device, char* name, unsigned size) {
  return std::snprintf(
             name, size,
             number(device) >= 100 ? "NVIDIA A100-SXM4-40GB MIG 3g.20gb" : "NVIDIA A100-SXM4-40GB"),
         0;
}
FAKE int nvmlDeviceGetUUID(void* device, char* uuid, unsigned size) {
  return std::snprintf(uuid, size, "%s-%d", number(device) >= 100 ? "MIG" : "GPU", number(device)),
         0;
}
FAKE int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  int found = -1;
  if (std::sscanf(uuid, "GPU-%d", &found) != 1 || found < 0 || found > 4) return 6;
  return *device = &numbers[found], 0;
}
FAKE int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  memory->total = (number(device) >= 100 ? 20ULL : 40ULL) << 30;
  memory->used = (number(device) + 1ULL) << 30;
  return 0;
}
FAKE int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  return *major = 8, *minor = 0, 0;
}
FAKE int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* active) {
  (void)device;
  if (link >= 3) return 2;
  return *active = link < 2 ? 1 : 0, 0;
}
FAKE int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned, Pci* pci) {
  const int from = number(device);
  return std::strcpy(pci->bus_id, from >= 2 ? "00000000:C4:00.0" : kBus[1 - from]), 0;
}
FAKE int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned, unsigned* type) {
  return *type = number(device) >= 2 ? 2 : 0, 0;
}
FAKE int nvmlDeviceGetMigMode(void* device, unsigned* now, unsigned* later) {
  return *now = *later = number(device) >= 3, 0;
}
FAKE int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) { return *count = 7, 0; }
FAKE int nvmlDeviceGetMigDeviceHandleByIndex(void* gpu, unsigned index, void** device) {
  if (index > 1 || number(gpu) != 3) return 6;
  return *device = &numbers[5 + index], 0;
}
FAKE int nvmlDeviceGetUtilizationRates(void* device, Busy* busy) {
  return busy->gpu = 10U * static_cast<unsigned>(number(device)), 0;
}
// GPU 2 has two processes; of the second nothing is known. GPU 1 has more than fit.
struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned instance, compute_instance;
};
struct Sample {
  unsigned pid;
  unsigned long long time;
  unsigned sm, memory, encoder, decoder;
};
FAKE int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* out) {
  if (number(device) == 1) return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
  if (number(device) != 2) return *count = 0, 0;
  if (*count < 2) return 7;
  out[0] = {4711, 1ULL << 30, ~0U, ~0U};
  out[1] = {4712, ~0ULL, ~0U, ~0U};
  return *count = 2, 0;
}
FAKE int nvmlDeviceGetProcessUtilization(void* device, Sample* out, unsigned* count,
                                         unsigned long long since) {
  if (number(device) != 2 || since == 0) return 6;
  out[0] = {4711, since + 1, 30, 0, 0, 0};
  out[1] = {4711, since + 2, 50, 0, 0, 0};
  out[2] = {4712, since + 2, 101, 0, 0, 0};  // an older driver's mark for unknown
  return *count = 3, 0;
}
// GPU 0 has every fault, GPU 1 a driver that knows of none, GPU 3 errors that cannot be read.
struct Field {
  unsigned field, scope;
  long long timestamp, latency;
  int type, result;
  unsigned long long value;
};
FAKE int nvmlDeviceGetTotalEccErrors(void* device, int type, int counter,
                                     unsigned long long* count) {
  if (type != 1 || counter != 0 || number(device) == 3) return 3;
  return *count = number(device) == 0 ? 2 : 0, 0;
}
FAKE int nvmlDeviceGetRemappedRows(void* device, unsigned*, unsigned*, unsigned* pending,
                                   unsigned* failed) {
  return *pending = *failed = number(device) == 0, 0;
}
FAKE int nvmlDeviceGetFieldValues(void* device, int count, Field* values) {
  if (count != 1 || values[0].field != 230) return 2;
  values[0].result = number(device) == 1 ? 3 : 0;  // NVML_ERROR_NOT_SUPPORTED, of an older driver
  values[0].value = number(device) == 0 ? 1 : number(device) == 1 ? 4 : 0;
  return 0;
}
FAKE int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* reasons) {
  return *reasons = number(device) == 0 ? 0xc1 : 0x1, 0;
}
FAKE int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) { return *milliwatts = 61500, 0; }
}
