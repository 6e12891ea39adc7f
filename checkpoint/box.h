// Boxes: rectangular parts of a tensor, and the runs of memory that copy one out of another.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace regroup::checkpoint {

inline constexpr std::size_t kMaxRank = 32;  // dimensions; as many as HDF5 has

using Shape = std::vector<std::uint64_t>;

// Elements start[i] .. start[i] + count[i] - 1 of each dimension i, in a tensor's own coordinates.
// Of a scalar: no dimensions, one element.
struct Box {
  Shape start;
  Shape count;
  bool operator==(const Box&) const = default;
};

// The whole of a tensor.
[[nodiscard]] Box whole(const Shape& shape);
// Elements; nothing if their number is above 2^62.
[[nodiscard]] std::optional<std::uint64_t> volume_of(const Shape& count);
// Whether no program can have that shape, elements or not: the extents other than 0, multiplied
// with each other and with `unit`, are above 2^63 - 1.
[[nodiscard]] bool is_boundless(const Shape& shape, std::uint64_t unit = 1);
[[nodiscard]] bool lies_within(const Box& box, const Shape& shape);
// What both have; nothing if that is no element. Both are of the same number of dimensions.
[[nodiscard]] std::optional<Box> intersection(const Box& a, const Box& b);
// "[0:4, 2:8]".
[[nodiscard]] std::string to_string(const Box& box);

// `elements` elements in a row, both where they are and where they go.
struct Run {
  std::uint64_t from;  // first element, counted within the box that is read
  std::uint64_t to;    // likewise, within the box that is filled
  std::uint64_t elements;
};
// How the elements of `part`, which lies in both, come from memory that holds box `from` to memory
// that holds box `to`, both row by row (C order). Ascending in both; as long as they can be.
[[nodiscard]] std::vector<Run> runs_of(const Box& part, const Box& from, const Box& to);

// Nothing if `boxes` fill `shape` with no element left out and none twice; else what is wrong.
[[nodiscard]] std::optional<std::string> why_no_tiling(const Shape& shape,
                                                       std::span<const Box> boxes);

}  // namespace regroup::checkpoint
