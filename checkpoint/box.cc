// Arithmetic of boxes. Their numbers come from files, so every product is checked for overflow.
#include "checkpoint/box.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace regroup::checkpoint {
namespace {

constexpr std::uint64_t kMostElements = std::uint64_t{1}
                                        << 59;  // times 16 bytes, the largest element, fits

// The distance in elements between neighbours in each dimension, in a box of `count`.
Shape strides_of(const Shape& count) {
  Shape out(count.size(), 1);
  for (std::size_t i = count.size(); i-- > 1;) out[i - 1] = out[i] * count[i];
  return out;
}

std::uint64_t index_in(const Box& box, const Shape& strides, const Shape& at) {
  std::uint64_t index = 0;
  for (std::size_t i = 0; i < at.size(); ++i) index += (at[i] - box.start[i]) * strides[i];
  return index;
}

// The first dimension from which on `part` is contiguous in both `from` and `to`.
std::size_t first_of_row(const Box& part, const Box& from, const Box& to) {
  std::size_t first = part.count.size();
  while (first > 0) {
    --first;
    if (part.count[first] != from.count[first] || part.count[first] != to.count[first]) break;
  }
  return first;
}

// Moves to the next position in the dimensions before `end`; false after the last one.
bool advance(const Box& part, std::size_t end, Shape* at) {
  for (std::size_t i = end; i-- > 0;) {
    if (++(*at)[i] < part.start[i] + part.count[i]) return true;
    (*at)[i] = part.start[i];
  }
  return false;
}

}  // namespace

Box whole(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

std::optional<std::uint64_t> volume_of(const Shape& count) {
  if (std::ranges::find(count, 0) != count.end()) return 0;
  std::uint64_t volume = 1;
  for (const std::uint64_t n : count) {
    if (n > kMostElements / volume) return std::nullopt;
    volume *= n;
  }
  return volume;
}

bool is_too_large(const Shape& shape, std::uint64_t unit) {
  std::uint64_t left = std::numeric_limits<std::int64_t>::max() / unit;
  for (const std::uint64_t n : shape) {
    if (n > left) return true;
    left /= std::max<std::uint64_t>(n, 1);
  }
  return false;
}

bool lies_within(const Box& box, const Shape& shape) {
  if (box.start.size() != shape.size() || box.count.size() != shape.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (box.count[i] > shape[i] || box.start[i] > shape[i] - box.count[i]) return false;
  }
  return true;
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  Box out;
  for (std::size_t i = 0; i < a.start.size(); ++i) {
    const std::uint64_t begin = std::max(a.start[i], b.start[i]);
    const std::uint64_t end = std::min(a.start[i] + a.count[i], b.start[i] + b.count[i]);
    if (begin >= end) return std::nullopt;
    out.start.push_back(begin);
    out.count.push_back(end - begin);
  }
  return out;
}

std::string to_string(const Box& box) {
  std::string text = "[";
  for (std::size_t i = 0; i < box.start.size(); ++i)
    text += fmt::format("{}{}:{}", i == 0 ? "" : ", ", box.start[i], box.start[i] + box.count[i]);
  return text + "]";
}

std::vector<Run> runs_of(const Box& part, const Box& from, const Box& to) {
  std::vector<Run> out;
  if (volume_of(part.count).value_or(0) == 0) return out;
  const std::size_t row = first_of_row(part, from, to);
  const std::uint64_t elements =
      std::accumulate(part.count.begin() + static_cast<std::ptrdiff_t>(row), part.count.end(),
                      std::uint64_t{1}, std::multiplies<>());
  const Shape from_strides = strides_of(from.count), to_strides = strides_of(to.count);
  Shape at = part.start;
  do {
    out.push_back({index_in(from, from_strides, at), index_in(to, to_strides, at), elements});
  } while (advance(part, row, &at));
  return out;
}

std::optional<std::string> tiling_error(const Shape& shape, std::span<const Box> boxes) {
  std::vector<const Box*> sorted;
  std::uint64_t sum = 0;
  for (const Box& box : boxes) {
    if (!lies_within(box, shape))
      return fmt::format("{} reaches beyond the tensor", to_string(box));
    const std::uint64_t volume = *volume_of(box.count);
    sum += volume;
    if (volume > 0) sorted.push_back(&box);
    if (sum > *volume_of(shape)) return fmt::format("{} is in two pieces", to_string(box));
  }
  if (sum != *volume_of(shape)) return fmt::format("{} of {} elements", sum, *volume_of(shape));
  if (shape.empty()) return std::nullopt;
  // Sorted by their first rows, two boxes can overlap only if one begins before the other ends.
  std::ranges::sort(sorted, {}, [](const Box* box) { return box->start; });
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const std::uint64_t end = sorted[i]->start[0] + sorted[i]->count[0];
    for (std::size_t j = i + 1; j < sorted.size() && sorted[j]->start[0] < end; ++j) {
      if (intersection(*sorted[i], *sorted[j]))
        return fmt::format("{} and {} overlap", to_string(*sorted[i]), to_string(*sorted[j]));
    }
  }
  return std::nullopt;
}

}  // namespace regroup::checkpoint
