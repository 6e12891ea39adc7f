// The part of NVML's interface that is used, with its names and layouts (nvml.h of CUDA 12 and 13;
// tests/python/test_gpu_headers.py compares them). Values that an older driver does not have are
// left at their defaults.
#pragma once

namespace regroup::base::nvml_abi {

using Device = struct nvmlDevice_st*;
using Return = int;  // 0: success

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
struct ProcessInfo {  // nvmlProcessInfo_v2_t
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};
struct ProcessUtilization {  // nvmlProcessUtilizationSample_t
  unsigned pid;
  unsigned long long microseconds;
  unsigned sm, memory, encoder, decoder;
};

union Value {  // nvmlValue_t
  double real;
  unsigned whole;
  unsigned long long wide;
};
struct FieldValue {  // nvmlFieldValue_t
  unsigned field, scope;
  long long timestamp, latency;
  int type;
  Return result;
  Value value;
};
constexpr unsigned kRecoveryAction = 230;  // a field, whose values are
constexpr unsigned kResetGpu = 1, kRebootHost = 2, kDrainAndReset = 4;
constexpr int kUncorrected = 1;        // of nvmlMemoryErrorType_t
constexpr int kSinceDriverLoaded = 0;  // of nvmlEccCounterType_t
constexpr unsigned long long kThermalSlowdown = 0x40, kPowerBrake = 0x80;  // reasons of clocks

enum RemoteType : unsigned { kToGpu = 0, kToNpu = 1, kToSwitch = 2 };

struct Functions {
  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  const char* (*error)(Return) = nullptr;
  Return (*count)(unsigned*) = nullptr;
  Return (*by_index)(unsigned, Device*) = nullptr;
  Return (*by_uuid)(const char*, Device*) = nullptr;
  Return (*pci)(Device, PciInfo*) = nullptr;
  Return (*name)(Device, char*, unsigned) = nullptr;
  Return (*uuid)(Device, char*, unsigned) = nullptr;
  Return (*memory)(Device, Memory*) = nullptr;
  Return (*capability)(Device, int*, int*) = nullptr;
  Return (*link_state)(Device, unsigned, unsigned*) = nullptr;
  Return (*link_remote)(Device, unsigned, PciInfo*) = nullptr;
  Return (*link_type)(Device, unsigned,
                      unsigned*) = nullptr;  // an older driver may lack this and the following
  Return (*mig_mode)(Device, unsigned*, unsigned*) = nullptr;
  Return (*mig_count)(Device, unsigned*) = nullptr;
  Return (*mig_by_index)(Device, unsigned, Device*) = nullptr;
  Return (*utilization)(Device, Utilization*) = nullptr;
  Return (*power)(Device, unsigned*) = nullptr;
  Return (*processes)(Device, unsigned*, ProcessInfo*) = nullptr;
  Return (*process_utilization)(Device, ProcessUtilization*, unsigned*,
                                unsigned long long) = nullptr;
  Return (*ecc_errors)(Device, int, int, unsigned long long*) = nullptr;
  Return (*remapped_rows)(Device, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  Return (*field_values)(Device, int, FieldValue*) = nullptr;
  Return (*clock_reasons)(Device, unsigned long long*) = nullptr;
};

}  // namespace regroup::base::nvml_abi
