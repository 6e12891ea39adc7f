// A Communicator over messages of the program's own library: what regroup/mpi.h does with MPI.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "regroup/communicator.h"
#include "regroup/operation.h"
#include "regroup/status.h"

namespace regroup::collective {

// Messages between the ranks of a group that never changes, as those of an MPI communicator. Used
// by one thread, that of the Communicator. No call may block, except split().
class PointToPoint {
 public:
  virtual ~PointToPoint() = default;

  // The rank of this process, from 0 to size() - 1; constant.
  [[nodiscard]] virtual int rank() const = 0;
  // The number of ranks; constant.
  [[nodiscard]] virtual int size() const = 0;
  // Begins to send `data`, which stays until done() or cancel(). Messages of one tag (1 or 2)
  // between two ranks arrive in the order of the calls. Returns a number for done().
  [[nodiscard]] virtual std::size_t send(int to, int tag, Input data) = 0;
  // Begins to receive the next message of that tag from that rank, which has data.size() bytes.
  [[nodiscard]] virtual std::size_t receive(int from, int tag, Output data) = 0;
  // True, once, if the send or receive `number` is complete: the number is free again.
  [[nodiscard]] virtual bool done(std::size_t number) = 0;
  // Ends a receive that no message has begun to fill.
  virtual void cancel(std::size_t number) = 0;
  // A rank of which a message of that tag has arrived that no receive() has taken yet.
  [[nodiscard]] virtual std::optional<int> arrived(int tag) = 0;
  // As Communicator::split(); blocks until all ranks have called it.
  [[nodiscard]] virtual std::unique_ptr<PointToPoint> split(int color) = 0;
  // Why a call has failed; "": none has.
  [[nodiscard]] virtual std::string error() const = 0;
};

// Makes a communicator over `messages`, whose ranks all call this. It has no generations: nothing
// revokes it, and a rank that dies is noticed by `messages` or by a deadline. After a failure, the
// memory of operations that were under way stays in use until the process ends. Does not block.
// Destroying it waits up to 2 s for the ranks that have not destroyed theirs.
[[nodiscard]] base::Result<std::unique_ptr<Communicator>> make_communicator(
    std::unique_ptr<PointToPoint> messages);

// A leaf of a canonical sum: a gradient of one logical shard, for example.
struct Leaf {
  std::uint32_t number = 0;
  Input data;
};

// Sums the leaves 0..leaf_count-1, of which each rank has those in `leaves`, in the order of the
// canonical tree: `result`, of the size of each leaf, has in all ranks the bits that an elastic job
// of `leaf_count` logical shards gets, whatever the number of ranks and whichever has which leaf.
// For communicators of make_communicator() and regroup/mpi.h. `leaves` do not overlap `result`, are
// ascending, and those of all ranks are each number once. Order, waiting, deadline and errors are
// those of Communicator::run(); kInvalidArgument too if a leaf is missing or given twice.
[[nodiscard]] base::Status allreduce_leaves(Communicator& communicator,
                                            std::span<const Leaf> leaves, std::uint32_t leaf_count,
                                            Output result, Dtype dtype, base::TimePoint deadline);

}  // namespace regroup::collective

namespace regroup {

using collective::allreduce_leaves, collective::Leaf, collective::make_communicator,
    collective::PointToPoint;

}  // namespace regroup
