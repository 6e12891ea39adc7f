// The defaults of State, and TrackedState: a list of the caller's buffers in the order of track().
#include "regroup/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "checkpoint/dtype.h"
#include "elastic/device_stream.h"
#include "elastic/save_layout.h"

namespace regroup::elastic {

using collective::cuda::DevicePointer;
using collective::cuda::DriverResult;
using collective::cuda::PointerAttribute;

// A tensor in memory of a device, and its copy on the host, which has pages of its own.
class DeviceTensor {
 public:
  DeviceTensor(std::unique_ptr<DeviceStream> stream, DevicePointer at, std::size_t bytes)
      : stream_(std::move(stream)), at_(at) {
    const std::size_t pages = std::max<std::size_t>((bytes + kPage - 1) / kPage, 1);
    host_ = static_cast<std::byte*>(std::aligned_alloc(kPage, pages * kPage));
    if (host_ != nullptr) pinned_ = stream_->pin({host_, bytes});
  }
  // A device that did not answer in time may still write to the copy.
  ~DeviceTensor() {
    if (!stream_->answers()) return;
    if (pinned_ != nullptr) (void)stream_->driver().host_unregister(pinned_);
    std::free(host_);
  }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  [[nodiscard]] std::byte* host() const { return host_; }
  [[nodiscard]] base::Status save(std::span<std::byte> host) const {
    return stream_->copy_to_host(host, at_);
  }
  [[nodiscard]] base::Status load(std::span<const std::byte> bytes) const {
    return stream_->copy_to_device(at_, bytes);
  }

 private:
  static constexpr std::size_t kPage = 65536;  // a multiple of any processor's
  const std::unique_ptr<DeviceStream> stream_;
  const DevicePointer at_;
  std::byte* host_ = nullptr;
  void* pinned_ = nullptr;
};

base::Status State::replicated(const std::function<void(const StatePart&)>& take) {
  REGROUP_ASSIGN_OR_RETURN(const auto pieces, save());
  const std::vector<TensorInfo> infos = infos_of(*this, pieces);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (!infos[i].name.empty()) take({infos[i].name, pieces[i]});
  }
  return {};
}

void TrackedState::track(std::string name, std::span<std::byte> bytes, std::string dtype) {
  tensors_.push_back({std::move(name), bytes, std::move(dtype)});
}

base::Status TrackedState::track_device(std::string name, void* address, std::size_t bytes,
                                        std::string dtype, void* stream) {
  constexpr std::chrono::minutes kDeadline(10);
  auto opened = DeviceStream::open(std::nullopt, stream, kDeadline);
  if (!opened.ok())
    return {opened.code(), fmt::format("track_device: {}: {}", name, opened.status().message())};
  const auto at = reinterpret_cast<DevicePointer>(address);
  unsigned kind = 0;
  if ((*opened)->driver().pointer_attribute(&kind, PointerAttribute::kMemoryType, at) !=
          DriverResult::kSuccess ||
      kind != collective::cuda::kMemoryTypeDevice)
    return base::invalid_argument(fmt::format(
        "track_device: {}: expected memory of a CUDA device, got the address {}", name, address));
  auto tensor = std::make_shared<DeviceTensor>(std::move(*opened), at, bytes);
  if (tensor->host() == nullptr)
    return base::resource_exhausted(
        fmt::format("track_device: {}: no {} bytes of host memory for a copy", name, bytes));
  std::byte* const host = tensor->host();
  tensors_.push_back({std::move(name), {host, bytes}, std::move(dtype), std::move(tensor)});
  return {};
}

std::vector<TensorInfo> TrackedState::tensors() {
  std::vector<TensorInfo> out;
  for (const Tensor& tensor : tensors_) {
    const std::size_t size = checkpoint::size_of_dtype(tensor.dtype).value_or(1);
    out.push_back({tensor.name, tensor.dtype, {tensor.bytes.size() / size}});
  }
  return out;
}

std::uint64_t TrackedState::capacity() const {
  std::uint64_t total = 0;
  for (const Tensor& tensor : tensors_) total += tensor.bytes.size();
  return total;
}

base::Result<std::vector<std::span<const std::byte>>> TrackedState::save() {
  std::vector<std::span<const std::byte>> pieces;
  for (const Tensor& tensor : tensors_) {
    if (tensor.device) REGROUP_RETURN_IF_ERROR(tensor.device->save(tensor.bytes));
    pieces.emplace_back(tensor.bytes);
  }
  return pieces;
}

base::Status TrackedState::load(std::span<const std::byte> bytes) {
  if (bytes.size() != capacity()) {
    return base::invalid_argument(
        fmt::format("state: got {} bytes, expected {} ({})", bytes.size(), capacity(), describe()));
  }
  for (const Tensor& tensor : tensors_) {
    if (tensor.device)
      REGROUP_RETURN_IF_ERROR(tensor.device->load(bytes.first(tensor.bytes.size())));
    else if (!tensor.bytes.empty())
      std::memcpy(tensor.bytes.data(), bytes.data(), tensor.bytes.size());
    bytes = bytes.subspan(tensor.bytes.size());
  }
  return {};
}

std::optional<std::vector<std::span<std::byte>>> TrackedState::memory_of(std::uint64_t bytes) {
  const bool on_device =
      std::ranges::any_of(tensors_, [](const Tensor& tensor) { return tensor.device != nullptr; });
  if (on_device || bytes != capacity()) return std::nullopt;
  std::vector<std::span<std::byte>> pieces;
  for (const Tensor& tensor : tensors_) pieces.push_back(tensor.bytes);
  return pieces;
}

std::string TrackedState::describe() const {
  std::string text;
  for (const Tensor& tensor : tensors_) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ";", tensor.name, tensor.bytes.size());
  }
  return text;
}

}  // namespace regroup::elastic
