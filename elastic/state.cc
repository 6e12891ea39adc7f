// The defaults of State, and TrackedState: a list of the caller's buffers in the order of track().
#include "regroup/state.h"
#include "base/status.h"

#include <fmt/format.h>

#include <cstring>

#include "checkpoint/dtype.h"
#include "elastic/save_layout.h"

namespace regroup::elastic {

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
  for (const Tensor& tensor : tensors_) pieces.emplace_back(tensor.bytes);
  return pieces;
}

base::Status TrackedState::load(std::span<const std::byte> bytes) {
  if (bytes.size() != capacity()) {
    return base::invalid_argument(
        fmt::format("state: got {} bytes, expected {} ({})", bytes.size(), capacity(), describe()));
  }
  for (const Tensor& tensor : tensors_) {
    if (!tensor.bytes.empty()) std::memcpy(tensor.bytes.data(), bytes.data(), tensor.bytes.size());
    bytes = bytes.subspan(tensor.bytes.size());
  }
  return {};
}

std::optional<std::vector<std::span<std::byte>>> TrackedState::memory_of(std::uint64_t bytes) {
  if (bytes != capacity()) return std::nullopt;
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
