// Sums of leaves: siblings are added as soon as both are there.
#include "collective/ps/step_sums.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collective/reduce/standard_arithmetic.h"
#include "proto/canonical.h"

namespace regroup::collective::ps {
namespace {

template <class T>
void add_values(std::byte* to, const std::byte* left, const std::byte* right, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, left + i * sizeof(T), sizeof(T));
    std::memcpy(&b, right + i * sizeof(T), sizeof(T));
    a += b;
    std::memcpy(to + i * sizeof(T), &a, sizeof(T));
  }
}
// Integers wrap around, as they do in kernels of collectives.
void add_values(Dtype dtype, std::byte* to, const std::byte* left, const std::byte* right,
                std::size_t count) {
  switch (dtype) {
    case Dtype::kFloat64:
      return add_values<double>(to, left, right, count);
    case Dtype::kInt64:
      return add_values<std::uint64_t>(to, left, right, count);
    case Dtype::kInt32:
      return add_values<std::uint32_t>(to, left, right, count);
    default:
      return add_values<float>(to, left, right, count);
  }
}

bool follows(const RangeGradients& left, const RangeGradients& right) {
  return !left.positions.empty() && !right.positions.empty() &&
         left.positions.back() < right.positions.front();
}
RangeGradients append(RangeGradients left, const RangeGradients& right) {
  left.positions.insert(left.positions.end(), right.positions.begin(), right.positions.end());
  left.values.insert(left.values.end(), right.values.begin(), right.values.end());
  return left;
}

RangeGradients merge(const RangeGradients& left, const RangeGradients& right) {
  const std::size_t row = left.dim * size_of(left.dtype);
  RangeGradients out{.dtype = left.dtype, .dim = left.dim, .lr = left.lr};
  out.positions.reserve(left.positions.size() + right.positions.size());
  std::ranges::set_union(left.positions, right.positions, std::back_inserter(out.positions));
  out.values.resize(out.positions.size() * row);
  std::size_t l = 0, r = 0;
  for (std::size_t i = 0; i < out.positions.size(); ++i) {
    const std::uint64_t position = out.positions[i];
    const bool in_left = l < left.positions.size() && left.positions[l] == position;
    const bool in_right = r < right.positions.size() && right.positions[r] == position;
    const std::byte* const a = left.values.data() + l * row;
    const std::byte* const b = right.values.data() + r * row;
    std::byte* const to = out.values.data() + i * row;
    if (in_left && in_right) {
      add_values(left.dtype, to, a, b, left.dim);
    } else {
      std::memcpy(to, in_left ? a : b, row);
    }
    l += in_left ? 1 : 0;
    r += in_right ? 1 : 0;
  }
  return out;
}

// Of nodes of the tree: `left` has the lower leaves.
ShardGradients add(ShardGradients left, ShardGradients right) {
  for (auto& [range, gradients] : right) {
    const auto found = left.find(range);
    if (found == left.end()) {
      left.emplace(range, std::move(gradients));
    } else {
      found->second = ps::add(std::move(found->second), std::move(gradients));
    }
  }
  return left;
}

}  // namespace

RangeGradients add(RangeGradients left, RangeGradients right) {
  if (right.values.empty()) return left;
  if (left.values.empty()) return right;
  if (follows(left, right)) return append(std::move(left), right);
  if (follows(right, left)) return append(std::move(right), left);
  const reduce::StandardArithmetic arithmetic;
  if (!left.positions.empty()) return merge(left, right);
  add_values(left.dtype, left.values.data(), left.values.data(), right.values.data(),
             left.values.size() / size_of(left.dtype));
  return left;
}

void add_push(ShardGradients& to, std::uint32_t range, RangeGradients gradients) {
  const auto found = to.find(range);
  if (found == to.end()) {
    to.emplace(range, std::move(gradients));
  } else {
    found->second = add(std::move(found->second), std::move(gradients));
  }
}

base::Status StepSums::check_scalars_of(std::uint32_t range, const Scalars& scalars) {
  return check_scalars(scalars, scalars_.try_emplace(range, scalars).first->second);
}

void StepSums::add_leaf(std::uint32_t leaf, ShardGradients gradients) {
  has_[leaf] = true;
  ++count_;
  Node node{{leaf, leaf + 1}, std::move(gradients)};
  while (const auto parent = proto::canonical_parent(leaves_, node.leaves)) {
    const std::uint32_t split = proto::canonical_split(*parent);
    const bool is_left = node.leaves.begin == parent->begin;
    const proto::Interval sibling =
        is_left ? proto::Interval{split, parent->end} : proto::Interval{parent->begin, split};
    const auto found = nodes_.find(sibling.begin);
    if (found == nodes_.end() || found->second.leaves != sibling) break;
    ShardGradients other = std::move(found->second.gradients);
    nodes_.erase(found);
    node = {*parent, is_left ? add(std::move(node.gradients), std::move(other))
                             : add(std::move(other), std::move(node.gradients))};
  }
  nodes_.emplace(node.leaves.begin, std::move(node));
}

}  // namespace regroup::collective::ps
