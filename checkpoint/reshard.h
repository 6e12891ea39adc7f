// Plans how to move tensors from one distribution over owners (ranks, files) to another, as a list
// of copies. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/box.h"

namespace regroup::checkpoint {

struct OwnedPiece {
  std::uint32_t owner = 0;
  Box box;
};
struct TensorLayout {
  std::string name;
  std::string dtype;
  Shape shape;
  std::vector<OwnedPiece> pieces;
};
using Layout = std::vector<TensorLayout>;

// Copy `box`, in coordinates of the tensor, from piece `from` of the old layout to piece `to` of
// the new layout.
struct Copy {
  std::size_t tensor = 0;  // index in the new layout
  std::size_t from = 0;
  std::size_t to = 0;
  Box box;
};

// The copies that fill every element of every piece of `to` exactly once. Pieces of `from` must not
// overlap; those of `to` may, and need not cover the tensor. kInvalidArgument: `from` lacks a
// tensor of `to` or some of its elements, or has it with another type or shape.
[[nodiscard]] base::Result<std::vector<Copy>> plan(const Layout& from, const Layout& to);

// The rows (first dimension) of owner `part` of `parts`; the first owners may have one row more.
[[nodiscard]] Box share_of_rows(const Shape& shape, std::uint32_t part, std::uint32_t parts);

}  // namespace regroup::checkpoint
