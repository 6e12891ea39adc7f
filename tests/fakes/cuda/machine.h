// What the driver knows of devices: settings, the memory that is in use, which are lost.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "base/fd.h"
#include "tests/fakes/cuda/settings.h"

namespace regroup::fakes::cuda {

inline constexpr std::size_t kGranularity = 2UL << 20;

struct SharedDevices;  // of all processes with one state file

class Machine {
 public:
  // What cuInit() does, once. Any thread.
  static DriverResult start();
  // Null, with the reason in `why`, before cuInit() and in a child of fork() after it.
  static Machine* get(DriverResult& why);
  // After get() has succeeded, on threads of the fake.
  static Machine& running();

  const Settings settings;  // NOLINT(readability-identifier-naming)

  [[nodiscard]] bool has(DeviceIndex device) const;
  [[nodiscard]] bool lost(DeviceIndex device) const;
  void lose(DeviceIndex device);
  // False if so much is not free.
  [[nodiscard]] bool take(DeviceIndex device, std::uint64_t bytes);
  void give_back(DeviceIndex device, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t used(DeviceIndex device);

  // The fault of the next launch or copy, or of the next allocation. Counts.
  Fault next_work();
  Fault next_allocation();
  // All work takes so many times as long.
  std::atomic<std::uint32_t> slowness = 1;

 private:
  explicit Machine(Settings read);

  base::Status open_state();
  // Of the processes whose lock is held.
  std::uint64_t used_locked(DeviceIndex device);
  [[nodiscard]] Fault fault_at(std::uint64_t count, bool allocation) const;

  std::atomic<std::uint64_t> works_ = 0;
  std::atomic<std::uint64_t> allocations_ = 0;
  base::Fd state_;  // invalid without a state file
  std::uint32_t slot_ = 0;
  SharedDevices* shared_ = nullptr;
  std::mutex mutex_;  // with the lock of the state file: who may change what is in use
};

}  // namespace regroup::fakes::cuda
