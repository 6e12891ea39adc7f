// Memory of the GPUs of this host that can be handed to other processes as a file descriptor.
// docs/design/device_memory.md.
#pragma once

#include <optional>
#include <string>

#include "base/fd.h"
#include "base/status.h"
#include "collective/cuda/driver.h"
#include "proto/message.h"

namespace regroup::devices {

// Used by one thread. Creates no context. Calls of the driver block, without a limit if a device
// hangs.
class DeviceMemory {
 public:
  // Loads and initialises the driver at the first request.
  explicit DeviceMemory(std::string library = "libcuda.so.1") : library_(std::move(library)) {}

  struct Answer {
    proto::DeviceMemory memory;
    base::Fd descriptor;  // of the memory, which lives as long as a descriptor or a mapping of it
  };
  // Allocates memory on the GPU of that UUID, for members and, where the GPU can, network cards.
  [[nodiscard]] Answer allocate(const proto::AllocateDeviceMemory& wanted);

 private:
  [[nodiscard]] base::Status load();
  [[nodiscard]] base::Result<collective::cuda::DeviceIndex> find(const std::string& gpu) const;
  [[nodiscard]] base::Status create(collective::cuda::DeviceIndex device, Answer* answer) const;

  const std::string library_;
  std::optional<base::Status> loaded_;
  collective::cuda::Driver driver_;
};

}  // namespace regroup::devices
