// A copy of a state as it stood after the last step, for a checkpoint that is made of it later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/status.h"
#include "elastic/state.h"

namespace regroup::elastic {

class StateCopy final : public State {
 public:
  // Copies what `state` saves now. Errors are those of `state`.
  [[nodiscard]] static core::Result<std::unique_ptr<StateCopy>> of(State& state);
  [[nodiscard]] std::uint64_t capacity() const override { return bytes_.size(); }
  [[nodiscard]] core::Result<std::vector<std::span<const std::byte>>> save() override;
  // kInvalidArgument always: a copy is only read.
  [[nodiscard]] core::Status load(std::span<const std::byte> bytes) override;
  [[nodiscard]] std::vector<TensorInfo> tensors() override { return infos_; }

 private:
  StateCopy() = default;

  std::vector<std::byte> bytes_;      // of all pieces
  std::vector<std::size_t> lengths_;  // of each
  std::vector<TensorInfo> infos_;
};

}  // namespace regroup::elastic
