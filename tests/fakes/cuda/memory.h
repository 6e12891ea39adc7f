// Device memory, and host memory that is registered: who may touch which address.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <shared_mutex>

#include "base/fd.h"
#include "tests/fakes/cuda/context.h"

namespace regroup::fakes::cuda {

// What a copy may do with a range of addresses.
struct Range {
  enum class Kind { kPageable, kRegistered, kDevice, kInvalid } kind = Kind::kPageable;
  DeviceIndex device = 0;   // of kRegistered: that of the context which registered it
  int access = kReadWrite;  // of the device that asks
};

// Memory of cuMemCreate: a memfd. Counted while this process has a handle or a mapping of it.
class DeviceMemory {
 public:
  DeviceMemory(base::Fd file, DeviceIndex device, std::size_t bytes, bool exportable, bool counted)
      : file_(std::move(file)),
        device_(device),
        bytes_(bytes),
        exportable_(exportable),
        counted_(counted) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  // Null, with the reason in `why`.
  static std::shared_ptr<DeviceMemory> create(DeviceIndex device, std::size_t bytes,
                                              bool exportable, DriverResult& why);
  static std::shared_ptr<DeviceMemory> import(int descriptor, DriverResult& why);

  [[nodiscard]] int file() const { return file_.get(); }
  [[nodiscard]] DeviceIndex device() const { return device_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] bool exportable() const { return exportable_; }

 private:
  const base::Fd file_;
  const DeviceIndex device_;
  const std::size_t bytes_;
  const bool exportable_;
  const bool counted_;
};

// All results are those of the functions of CUDA that bear these names. Any thread. A range that is
// only looked up orders nothing between threads.
class Memory {
 public:
  DriverResult allocate(ContextState& context, std::size_t bytes, DevicePointer& out);
  DriverResult free(DevicePointer at);
  DriverResult add_registered(ContextState& context, const void* at, std::size_t bytes);
  DriverResult remove_registered(const void* at);

  Allocation add_handle(std::shared_ptr<DeviceMemory> memory);
  std::shared_ptr<DeviceMemory> find_handle(Allocation handle);
  DriverResult remove_handle(Allocation handle);

  DriverResult reserve(std::size_t bytes, std::size_t alignment, DevicePointer wanted,
                       DevicePointer& out);
  DriverResult free_reserved(DevicePointer at, std::size_t bytes);
  DriverResult map(DevicePointer at, std::size_t bytes, Allocation handle);
  DriverResult unmap(DevicePointer at, std::size_t bytes);
  DriverResult set_access(DevicePointer at, std::size_t bytes, DeviceIndex device, int access);

  // What `device` may do with all of the range.
  Range range_of(DevicePointer at, std::size_t bytes, DeviceIndex device);
  // Frees what belonged to a context.
  void forget(const ContextState& context);

 private:
  struct Block {
    std::size_t bytes = 0;  // asked for
    void* base = nullptr;   // with a page in front and one behind that nobody may touch
    std::size_t whole = 0;
    ContextState* context = nullptr;
  };
  struct Mapping {
    std::size_t bytes = 0;
    std::shared_ptr<DeviceMemory> memory;
    int access[kMostDevices] = {};
  };
  struct Registered {
    std::size_t bytes = 0;
    ContextState* context = nullptr;
  };
  using Mappings = std::map<DevicePointer, Mapping>;

  // The mappings that are exactly the range; none if it cuts one or has a hole.
  std::pair<Mappings::iterator, Mappings::iterator> mappings_in(DevicePointer at,
                                                                std::size_t bytes);
  [[nodiscard]] bool is_reserved(DevicePointer at, std::size_t bytes) const;
  [[nodiscard]] Range mapped_range(DevicePointer at, std::size_t bytes, DeviceIndex device) const;
  static void release(const Block& block);

  std::shared_mutex mutex_;  // of all below
  std::map<DevicePointer, Block> blocks_;
  std::map<DevicePointer, std::size_t> reservations_;
  Mappings mappings_;
  std::map<DevicePointer, Registered> registered_;
  std::map<Allocation, std::shared_ptr<DeviceMemory>> handles_;
  Allocation last_handle_ = 0x100;
};

Memory& memory();

}  // namespace regroup::fakes::cuda
