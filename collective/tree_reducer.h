// The reduction of gradients: sums partial sums over nodes of one canonical tree
// (proto/canonical.h) into a result that the ranks of a host share.
//   comm.tree_reducer().reduce(partials, leaf_count, result, Dtype::kFloat32, deadline);
// MPI has no such operation. MPI_Allreduce sums one contribution of each rank, and may choose the
// order by the number of ranks. Here the terms are the leaves of a tree, whatever ranks there are:
// each rank passes what it can read of them, summed as far as somebody has summed it, and the bits
// depend on the leaves only.
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "base/status.h"
#include "collective/sum_blocks.h"
#include "proto/world.h"
#include "regroup/operation.h"

namespace regroup::collective {

// A canonical partial sum that every rank of this host can read.
struct Partial {
  proto::Interval leaves;
  Input data;
};

// Of one communicator, which must outlive it (Communicator::tree_reducer()). A reduction is a
// collective operation of the communicator: all its ranks start it in the same order as their other
// operations. Not thread-safe.
class TreeReducer {
 public:
  virtual ~TreeReducer() = default;

  // Sums `partials`, disjoint canonical nodes that cover the leaves 0..leaf_count-1 (over several
  // hosts: those of all hosts together do), into the shared `result` of this host: each rank of the
  // host writes one slice. Every rank passes partials that it has seen sealed; the bits of the
  // result do not depend on which. On return the whole result is readable by every rank of the
  // host. The inputs stay intact in any case. For 16-bit floats only single leaves are allowed,
  // since a partial sum would be rounded. `blocks`: over several hosts, the blocks of the result
  // that all hosts have are not summed again, and new ones are marked; on a single host everything
  // is summed and nothing is marked. Errors, waiting and deadline are those of Communicator::run().
  [[nodiscard]] virtual base::Status reduce(std::span<const Partial> partials,
                                            std::uint32_t leaf_count, Output result, Dtype dtype,
                                            base::TimePoint deadline, const SumBlocks& blocks) = 0;
  [[nodiscard]] base::Status reduce(std::span<const Partial> partials, std::uint32_t leaf_count,
                                    Output result, Dtype dtype, base::TimePoint deadline) {
    return reduce(partials, leaf_count, result, dtype, deadline, {});
  }
};

// For implementations: kInvalidArgument unless each of `partials` is as reduce() demands, of the
// size of `result`. Does not compare their leaves.
[[nodiscard]] base::Status check_partials(std::span<const Partial> partials, Input result,
                                          Dtype dtype);

}  // namespace regroup::collective
