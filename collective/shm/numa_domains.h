// The NUMA node on which a member runs, and the two-level reduction for ranks on several NUMA
// nodes: first the ranks of each NUMA node reduce the inputs of that node (intra), each rank one
// slice; then all ranks reduce the sums of the nodes (inter). So each input is read on its own NUMA
// node, and only sums cross between nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "collective/reduce/tree_fold.h"
#include "regroup/operation.h"

namespace regroup::collective::shm {

// Maps cores to NUMA nodes, from `folder`/nodeK/cpuN of sysfs.
class NumaNodes {
 public:
  explicit NumaNodes(const std::filesystem::path& folder);
  // The map of this machine, read once.
  [[nodiscard]] static const NumaNodes& of_this_machine();

  // The NUMA node that contains all of `cores` (one bit each). Empty if `cores` is empty or spans
  // nodes, or if the kernel does not report nodes.
  [[nodiscard]] std::optional<int> node_of(std::span<const std::uint64_t> cores) const;

 private:
  std::map<std::size_t, int> node_of_;  // by core
};

class TwoLevels {
 public:
  // Returns the part of rank `owner`'s bounce buffer that holds its sums of the current block.
  using SumsOf = std::function<const std::byte*(std::size_t owner)>;

  // Makes the two levels of `rank`; nodes[r] is the NUMA node of rank r. Empty if all ranks share a
  // NUMA node, or no NUMA node has two ranks whose sum is a node of the canonical tree.
  // `buffer_bytes`: size of the region for sums in a bounce buffer.
  [[nodiscard]] static base::Result<std::optional<TwoLevels>> make(std::span<const int> nodes,
                                                                   std::size_t rank,
                                                                   std::size_t buffer_bytes);

  // Bytes of the result processed in one pass over both levels; a multiple of 64.
  [[nodiscard]] std::size_t block() const { return block_; }
  // First level, for the byte range `block` of the result, at most block() bytes. `inputs[r]`: the
  // input of rank r, from byte 0. Writes the sums of this rank's slice to `sums`. `dtype` must not
  // be a 16-bit float, since sums would be rounded.
  void reduce_intra(std::span<const std::byte* const> inputs, reduce::ByteRange block,
                    std::byte* sums, Dtype dtype, Op op) const;
  // Second level, after a synchronisation point of all ranks: writes this rank's slice of the block
  // to its place in `out`, the whole result.
  void reduce_inter(std::span<const std::byte* const> inputs, reduce::ByteRange block,
                    const SumsOf& sums_of, std::byte* out, Dtype dtype, Op op,
                    reduce::Stores stores) const;

 private:
  // The sum over ranks first..first+count-1. The ranks of their group compute it, each one slice.
  struct Sum {
    std::size_t first;
    std::size_t count;
    std::size_t group;
    std::size_t index;  // among the sums of the group
    reduce::TreeFold fold;
  };
  explicit TwoLevels(reduce::TreeFold fold) : fold_(std::move(fold)) {}
  [[nodiscard]] std::size_t stride(std::size_t bytes, std::size_t group) const;

  std::vector<std::vector<std::size_t>> groups_;  // the ranks of each NUMA node
  std::vector<Sum> sums_;                         // of all groups
  reduce::TreeFold fold_;                         // whose inputs are terms_
  struct Term {
    bool is_sum;
    std::size_t index;  // in sums_, or a rank
  };
  std::vector<Term> terms_;
  std::size_t block_ = 0;
  std::size_t group_ = 0;         // the group of this rank
  std::size_t group_rank_ = 0;    // position in the group
  std::size_t global_slice_ = 0;  // index of this rank's slice of a block at the second level
};

}  // namespace regroup::collective::shm
