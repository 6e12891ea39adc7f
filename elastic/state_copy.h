// A copy of the state after the last step, for a checkpoint that is made after the caller has
// changed its state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "regroup/state.h"

namespace regroup::elastic {

class StateCopy final : public State {
 public:
  // Copies the present contents of `state`. Errors are those of State::save().
  [[nodiscard]] static base::Result<std::unique_ptr<StateCopy>> of(State& state);
  [[nodiscard]] std::uint64_t capacity() const override { return bytes_.size(); }
  [[nodiscard]] base::Result<std::vector<std::span<const std::byte>>> save() override;
  // Always kInvalidArgument: a copy is read-only.
  [[nodiscard]] base::Status load(std::span<const std::byte> bytes) override;
  [[nodiscard]] std::vector<TensorInfo> tensors() override { return infos_; }

 private:
  StateCopy() = default;

  std::vector<std::byte> bytes_;      // all pieces, concatenated
  std::vector<std::size_t> lengths_;  // length of each piece
  std::vector<TensorInfo> infos_;
};

}  // namespace regroup::elastic
