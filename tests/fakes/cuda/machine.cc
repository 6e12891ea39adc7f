// Devices: those of this process, or those in a state file.
#include "tests/fakes/cuda/machine.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "tests/fakes/cuda/fake.h"
#include "tests/fakes/cuda/guard.h"

namespace regroup::fakes::cuda {

// All zeros at first. Slot i belongs to the process that has locked byte i of the file.
constexpr std::uint32_t kSlots = 1024;
struct SharedDevices {
  struct {
    std::atomic<std::uint32_t> lost;
    std::atomic<std::uint64_t> used[kSlots];
  } devices[kMostDevices];
};

namespace {

std::mutex starting;
std::atomic<Machine*> started = nullptr;
std::atomic<bool> is_forked_child = false;

// Locks a byte of `file`, or asks for who has it locked, with F_OFD_SETLK, F_OFD_SETLKW,
// F_OFD_GETLK.
struct flock lock_byte(int file, int command, short type, off_t byte) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  int result = 0;
  do result = ::fcntl(file, command, &lock);
  while (result != 0 && errno == EINTR);
  if (result != 0) lock.l_type = F_RDLCK;  // in no answer that matters
  return lock;
}

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

DriverResult Machine::start() {
  if (is_forked_child) return kNotInitialized;
  const std::lock_guard lock(starting);
  if (started != nullptr) return kSuccess;
  auto settings = parse_settings(variable(kSettingsVariable), variable(kFaultsVariable));
  base::Status status = settings.status();
  // Never destroyed: threads of the fake use it until the process is gone.
  static Machine* machine = nullptr;
  if (status.ok()) {
    machine = new Machine(std::move(settings).value());
    status = machine->open_state();
  }
  if (!status.ok()) {
    std::fprintf(stderr, "fake libcuda: %s\n", status.message().c_str());
    return kInvalidValue;
  }
  if (machine->settings.devices == 0) return DriverResult::kNoDevice;
  install_guard();
  ::pthread_atfork(nullptr, nullptr, [] { is_forked_child = true; });
  started = machine;
  return kSuccess;
}

Machine* Machine::get(DriverResult& why) {
  why = kNotInitialized;
  return is_forked_child ? nullptr : started.load();
}

Machine& Machine::running() { return *started; }

Machine::Machine(Settings read) : settings(std::move(read)) {}

base::Status Machine::open_state() {
  int flags = MAP_SHARED | MAP_ANONYMOUS;
  if (!settings.state.empty()) {
    state_.reset(::open(settings.state.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!state_.valid() || ::ftruncate(state_.get(), sizeof(SharedDevices)) != 0)
      return base::system_error("open", settings.state, errno);
    while (lock_byte(state_.get(), F_OFD_SETLK, F_WRLCK, slot_).l_type != F_WRLCK)
      if (++slot_ == kSlots) return base::resource_exhausted("state: 1024 processes use the file");
    flags = MAP_SHARED;
  }
  void* memory = ::mmap(nullptr, sizeof(SharedDevices), PROT_READ | PROT_WRITE, flags,
                        state_.valid() ? state_.get() : -1, 0);
  if (memory == MAP_FAILED) return base::system_error("mmap", settings.state, errno);
  shared_ = static_cast<SharedDevices*>(memory);
  for (auto& device : shared_->devices) device.used[slot_] = 0;
  return {};
}

bool Machine::has(DeviceIndex device) const {
  return device >= 0 && std::uint32_t(device) < settings.devices;
}

bool Machine::lost(DeviceIndex device) const {
  return shared_->devices[device].lost.load(std::memory_order_relaxed) != 0;
}

void Machine::lose(DeviceIndex device) {
  shared_->devices[device].lost.store(1, std::memory_order_relaxed);
}

std::uint64_t Machine::used_locked(DeviceIndex device) {
  auto& used = shared_->devices[device].used;
  if (!state_.valid()) return used[0];
  std::uint64_t sum = 0;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    if (used[slot] == 0) continue;
    // The descriptor's own lock never stands in the way of the answer.
    const bool alive =
        slot == slot_ || lock_byte(state_.get(), F_OFD_GETLK, F_WRLCK, slot).l_type != F_UNLCK;
    if (!alive) used[slot] = 0;
    sum += used[slot];
  }
  return sum;
}

bool Machine::take(DeviceIndex device, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (state_.valid()) lock_byte(state_.get(), F_OFD_SETLKW, F_WRLCK, kSlots);
  const std::uint64_t in_use = used_locked(device);
  const bool fits = in_use <= settings.memory && bytes <= settings.memory - in_use;
  if (fits) shared_->devices[device].used[slot_] += bytes;
  if (state_.valid()) lock_byte(state_.get(), F_OFD_SETLK, F_UNLCK, kSlots);
  return fits;
}

void Machine::give_back(DeviceIndex device, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  shared_->devices[device].used[slot_] -= bytes;
}

std::uint64_t Machine::used(DeviceIndex device) {
  const std::lock_guard lock(mutex_);
  return used_locked(device);
}

Fault Machine::fault_at(std::uint64_t count, bool allocation) const {
  for (const Fault& fault : settings.faults)
    if (fault.at == count && (fault.kind == FaultKind::kOutOfMemory) == allocation) return fault;
  return {};
}

Fault Machine::next_work() {
  return fault_at(works_.fetch_add(1, std::memory_order_relaxed) + 1, false);
}

Fault Machine::next_allocation() {
  return fault_at(allocations_.fetch_add(1, std::memory_order_relaxed) + 1, true);
}

}  // namespace regroup::fakes::cuda
