// Fills leaves from gradients that lie anywhere in memory of the device: one launch of the harvest
// kernel for each run of parts with the same weight.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "collective/cuda/device_kernels.h"
#include "collective/cuda/driver.h"
#include "elastic/device_stream.h"
#include "regroup/session.h"

namespace regroup::elastic {

// Training thread only, with the context of the stream current.
class DeviceHarvest {
 public:
  // `stream` must outlive this object.
  DeviceHarvest(const DeviceStream& stream, collective::cuda::DeviceKernels kernels,
                collective::Dtype dtype)
      : stream_(stream), kernels_(std::move(kernels)), dtype_(dtype) {}
  ~DeviceHarvest();
  DeviceHarvest(const DeviceHarvest&) = delete;
  DeviceHarvest& operator=(const DeviceHarvest&) = delete;

  // Puts on the stream that `leaf`, memory of the device, is filled from the parts, as
  // Session::fill_gradient() says; they have been checked to ascend and to end within the leaf.
  // kInvalidArgument: a part is not aligned to an element, or one whose weight is not that of the
  // part before does not begin at a multiple of 16 bytes. Other errors are the driver's. Waits for
  // the copy of the table of the leaf before the last one, with the deadline of the stream.
  [[nodiscard]] base::Status fill(std::span<std::byte> leaf, std::span<const GradientPart> parts);

 private:
  // The table of a leaf on its way to the device. Not freed before the end, since that would wait
  // for the device.
  struct Table {
    std::size_t room = 0;  // pieces
    std::unique_ptr<std::byte, void (*)(void*)> memory{nullptr, nullptr};
    void* pinned = nullptr;
    collective::cuda::DevicePointer device = 0;
    collective::cuda::DriverEvent copied = nullptr;  // null: never used
  };
  [[nodiscard]] base::Status check(std::span<const GradientPart> parts) const;
  [[nodiscard]] base::Status prepare(Table& table, std::size_t pieces);
  [[nodiscard]] base::Status launch(std::span<std::byte> leaf, std::span<const GradientPart> parts,
                                    const Table& table) const;

  const DeviceStream& stream_;
  const collective::cuda::DeviceKernels kernels_;
  const collective::Dtype dtype_;
  std::array<Table, 2> tables_;
  std::size_t next_ = 0;
  std::vector<Table> outgrown_;
};

// Why gradients of this process cannot be filled and summed on device `number`, as a part of a
// sentence; "" if they can: its job has no memory there (--device-memory), or there is no driver,
// device or kernel for it. Makes the context of the device current where none is.
[[nodiscard]] std::string why_not_on_device(int number);

}  // namespace regroup::elastic
