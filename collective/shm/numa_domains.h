// Which NUMA node a member computes on, and the reduction in two levels of ranks on several nodes: first the
// ranks of a node sum what lies there, each a slice of it, then all ranks the sums of the nodes, so that an
// input is read from its own node and between nodes go sums only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "collective/operation.h"
#include "collective/shm/tree_fold.h"
#include "core/status.h"

namespace regroup::collective {

// Which NUMA node each core is of, by `folder`/nodeK/cpuN of the kernel.
class NumaNodes {
 public:
  explicit NumaNodes(const std::filesystem::path& folder);
  // This machine's, read once.
  [[nodiscard]] static const NumaNodes& of_this_machine();

  // The node that all of `cores` (a bit each) are of; nothing if there are none, they are of several, or the
  // kernel does not say.
  [[nodiscard]] std::optional<int> node_of(std::span<const std::uint64_t> cores) const;

 private:
  std::map<std::size_t, int> node_of_;  // by core
};

class TwoLevels {
 public:
  // The part of rank `owner`'s stage that holds the sums it made of the block at hand.
  using SumsOf = std::function<const std::byte*(std::size_t owner)>;

  // For this `rank` of nodes.size() ranks, of which nodes[r] is that of r. Nothing if they are all of one
  // node, or no node has two ranks whose sum is part of the canonical tree. `room`: bytes of a stage.
  [[nodiscard]] static core::Result<std::optional<TwoLevels>> make(std::span<const int> nodes,
                                                                   std::size_t rank,
                                                                   std::size_t buffer_bytes);

  // Bytes of the result that all ranks make in one turn of both levels; a multiple of 64.
  [[nodiscard]] std::size_t block() const { return block_; }
  // The first level for bytes `block` of the result, at most block() of them: `inputs` by rank, from byte 0;
  // the sums of this rank's slice go to `sums`. `dtype` is not a 16-bit floating type: sums would be rounded.
  void reduce_intra(std::span<const std::byte* const> inputs, ByteRange block, std::byte* sums, Dtype dtype,
                    Op op) const;
  // The second, behind a rendezvous of all: writes this rank's slice of the block into `out`, of byte 0.
  void reduce_inter(std::span<const std::byte* const> inputs, ByteRange block, const SumsOf& sums_of,
                    std::byte* out, Dtype dtype, Op op, Stores stores) const;

 private:
  // The sum of ranks first..first+count-1, which the ranks of their node make, each a slice.
  struct Sum {
    std::size_t first;
    std::size_t count;
    std::size_t group;
    std::size_t index;  // among the sums of the group
    TreeFold fold;
  };
  explicit TwoLevels(TreeFold fold) : fold_(std::move(fold)) {}
  [[nodiscard]] std::size_t stride(std::size_t bytes, std::size_t group) const;

  std::vector<std::vector<std::size_t>> groups_;  // ranks of each node
  std::vector<Sum> sums_;                         // of all groups
  TreeFold fold_;                                 // over what terms_ lists
  struct Term {
    bool is_sum;
    std::size_t index;  // in sums_, or a rank
  };
  std::vector<Term> terms_;
  std::size_t block_ = 0;
  std::size_t group_ = 0;         // of this rank
  std::size_t group_rank_ = 0;    // in it
  std::size_t global_slice_ = 0;  // which slice of a block is this rank's at the second level
};

}  // namespace regroup::collective
