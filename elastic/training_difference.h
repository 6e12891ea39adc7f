// Names the differences of two trainings. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "regroup/state.h"

namespace regroup::elastic {

// The declaration of a training: its text, "MODEL samples=N batch=M", and the tensors of its state.
// Digests (16 hexadecimal digits) in the text are not shown.
struct Training {
  std::string_view model;
  std::span<const TensorInfo> tensors;
};

// "tensor fc.weight is float32 [10] in the checkpoint, float32 [11] in this program; samples is 400
// in the checkpoint, 500 in this program". Ignores tensors that an optimizer creates in its first
// step. Never empty: call it only for trainings that differ.
[[nodiscard]] std::string difference_of(const Training& there, const Training& here);

}  // namespace regroup::elastic
