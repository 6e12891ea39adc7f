// Gradients of one step of mode sync, as a shard gathers them. Leaves come in any order, from any
// client; they are added up along the canonical tree (proto/canonical.h), so that the bits of the
// sum depend on the leaves alone. Plain data in the server's own memory: it dies with the server,
// and clients compute the leaves again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/status.h"
#include "collective/ps/table.h"
#include "proto/world.h"

namespace regroup::collective::ps {

// Gradients of a range: rows of ascending positions, or all elements of a dense range.
struct RangeGradients {
  Dtype dtype = Dtype::kFloat32;  // the compute dtype of the table
  std::uint32_t dim = 1;          // of a row; dense: 1
  double lr = 0;
  std::vector<std::uint64_t> positions;  // empty for a dense range
  std::vector<std::byte> values;
  bool operator==(const RangeGradients&) const = default;
};
// left + right. A position that only one of them has keeps its bits. Both are of one range.
[[nodiscard]] RangeGradients add(RangeGradients left, RangeGradients right);

// Of a leaf, or a node of the tree, by the number of the range. A range without gradients is not in
// it.
using ShardGradients = std::map<std::uint32_t, RangeGradients>;
// Adds another push of the same leaf.
void add_push(ShardGradients& to, std::uint32_t range, RangeGradients gradients);

class StepSums {
 public:
  // Of a step of so many leaves, at least 1.
  explicit StepSums(std::uint32_t leaves) : leaves_(leaves), has_(leaves) {}

  [[nodiscard]] std::uint32_t leaves() const { return leaves_; }
  [[nodiscard]] bool has(std::uint32_t leaf) const { return has_[leaf]; }
  // kInvalidArgument: another push of this step had other scalars for the range.
  [[nodiscard]] base::Status check_scalars_of(std::uint32_t range, const Scalars& scalars);
  // A leaf that it does not have.
  void add_leaf(std::uint32_t leaf, ShardGradients gradients);
  // Whether it has all leaves.
  [[nodiscard]] bool is_complete() const { return count_ == leaves_; }
  // The sums of all leaves, once it is complete.
  [[nodiscard]] const ShardGradients& sums() const { return nodes_.begin()->second.gradients; }

 private:
  struct Node {
    proto::Interval leaves;
    ShardGradients gradients;
  };
  const std::uint32_t leaves_;
  std::uint32_t count_ = 0;
  std::vector<bool> has_;
  std::map<std::uint32_t, Node> nodes_;  // disjoint, by their first leaf
  std::map<std::uint32_t, Scalars> scalars_;
};

}  // namespace regroup::collective::ps
