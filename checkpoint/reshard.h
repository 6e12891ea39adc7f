// From one distribution of tensors over owners (ranks, files) to another: a pure plan, a list of
// copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/box.h"

namespace regroup::checkpoint {

struct LaidPiece {
  std::uint32_t owner = 0;
  Box box;
};
struct LaidTensor {
  std::string name;
  std::string dtype;
  Shape shape;
  std::vector<LaidPiece> pieces;
};
using Layout = std::vector<LaidTensor>;

// `box`, in coordinates of the tensor, from piece `from` of the old layout to piece `to` of the new
// one.
struct Copy {
  std::size_t tensor = 0;  // index in the new layout
  std::size_t from = 0;
  std::size_t to = 0;
  Box box;
};

// Every element of every piece of `to`, once. Pieces of `from` do not overlap; those of `to` may,
// and need not hold the whole tensor. kInvalidArgument: a tensor that is not in `from`, or is of
// another type or shape there, or whose elements are not all there.
[[nodiscard]] base::Result<std::vector<Copy>> plan(const Layout& from, const Layout& to);

// How `parts` owners share the `rows` of a first dimension: the first owners have one more.
[[nodiscard]] Box share_of_rows(const Shape& shape, std::uint32_t part, std::uint32_t parts);

}  // namespace regroup::checkpoint
