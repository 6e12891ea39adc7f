// The reduction of gradients: sums partial sums over nodes of one canonical tree
// (proto/canonical.h) into a result that the ranks of a host share.
//   comm.tree_reducer().reduce(partials, leaf_count, result, Dtype::kFloat32, deadline);
// MPI has no such operation. MPI_Allreduce sums one contribution of each rank, and may choose the
// order by the number of ranks. Here the terms are the leaves of a tree, whatever the number of
// ranks: each rank passes the partial sums of leaves that it can read, and the bits of the result
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

// Belongs to a communicator (Communicator::tree_reducer()), which must outlive it. A reduction is a
// collective operation of that communicator: all ranks must start it in the same order relative to
// their other operations. Not thread-safe.
class TreeReducer {
 public:
  virtual ~TreeReducer() = default;

  // Sums `partials` into `result`, memory that the ranks of this host share; each rank writes one
  // slice. On return every rank of the host can read the whole result. The inputs stay intact, also
  // on failure.
  //
  // `partials`: disjoint canonical nodes that this rank has seen sealed; those of all hosts
  // together cover the leaves 0..leaf_count-1. The bits of the result do not depend on which nodes
  // a rank passes. For 16-bit floats they must be single leaves, since a partial sum would be
  // rounded. `blocks`: with several hosts, blocks of the result that are complete on all hosts are
  // not summed again, and new ones are marked; with one host everything is summed and nothing is
  // marked. Errors, waiting and deadline are those of Communicator::run().
  [[nodiscard]] virtual base::Status reduce(std::span<const Partial> partials,
                                            std::uint32_t leaf_count, Output result, Dtype dtype,
                                            base::TimePoint deadline, const SumBlocks& blocks) = 0;
  [[nodiscard]] base::Status reduce(std::span<const Partial> partials, std::uint32_t leaf_count,
                                    Output result, Dtype dtype, base::TimePoint deadline) {
    return reduce(partials, leaf_count, result, dtype, deadline, {});
  }
};

// For implementations: kInvalidArgument unless each of `partials` meets the conditions of reduce()
// and has the size of `result`. Does not compare their leaves with each other.
[[nodiscard]] base::Status check_partials(std::span<const Partial> partials, Input result,
                                          Dtype dtype);

}  // namespace regroup::collective
