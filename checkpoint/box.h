// Boxes (rectangular parts of a tensor), and how to copy the elements of one box out of another.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace regroup::checkpoint {

inline constexpr std::size_t kMaxRank = 32;  // greatest number of dimensions, as in HDF5

using Shape = std::vector<std::uint64_t>;

// Elements start[i] .. start[i] + count[i] - 1 in each dimension i of a tensor. The box of a scalar
// has no dimensions and one element.
struct Box {
  Shape start;
  Shape count;
  bool operator==(const Box&) const = default;
};

// The box of all elements of a tensor.
[[nodiscard]] Box whole(const Shape& shape);
// The number of elements; empty if it is above 2^62.
[[nodiscard]] std::optional<std::uint64_t> volume_of(const Shape& count);
// True if no program can hold a tensor of that shape, even one without elements: the product of
// `unit` and all extents other than 0 is above 2^63 - 1.
[[nodiscard]] bool is_too_large(const Shape& shape, std::uint64_t unit = 1);
[[nodiscard]] bool lies_within(const Box& box, const Shape& shape);
// The elements that are in both boxes; empty if there are none. Both boxes must have the same
// number of dimensions.
[[nodiscard]] std::optional<Box> intersection(const Box& a, const Box& b);
// "[0:4, 2:8]".
[[nodiscard]] std::string to_string(const Box& box);

// `elements` elements that are contiguous both in the source and in the target.
struct Run {
  std::uint64_t from;  // index of the first element within the source box
  std::uint64_t to;    // index of the first element within the target box
  std::uint64_t elements;
};
// The copies that move the elements of `part`, which lies in both boxes, from memory that holds box
// `from` to memory that holds box `to`, both row by row (C order). Ascending in both, and as few as
// possible.
[[nodiscard]] std::vector<Run> runs_of(const Box& part, const Box& from, const Box& to);

// Empty if `boxes` cover each element of `shape` exactly once; else what is wrong.
[[nodiscard]] std::optional<std::string> tiling_error(const Shape& shape,
                                                      std::span<const Box> boxes);

}  // namespace regroup::checkpoint
