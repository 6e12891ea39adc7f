// Collective operations among the members of one World. A Communicator is never resized: each
// generation opens a new one. Describe an operation, then run it, or start it and wait for its
// Request:
//   comm.run(Operation::allreduce(in, out, Dtype::kFloat32), deadline);
//   auto request = comm.start(Operation::allgather(in, out), deadline);  ...  request->wait();
// A rank that receives nothing (root of broadcast or scatter, non-root of reduce or gather) may
// return before its peers arrive. Later errors surface in its next collective, so barrier() reports
// them. Every wait has a deadline and ends when the generation is revoked. Not thread-safe. All
// members start the same collective operations in the same order; a difference is an error in every
// member whose message names both operations.
#pragma once

#include <cstdint>
#include <memory>

#include "regroup/operation.h"
#include "regroup/status.h"
#include "regroup/types.h"

namespace regroup::collective {

class Communicator;
class TreeReducer;

// A started operation. A handle: copies refer to the same operation. Valid while its communicator
// lives.
class Request {
 public:
  Request(Communicator* communicator, std::uint64_t ticket)
      : communicator_(communicator), ticket_(ticket) {}

  // True when the operation is complete. Does not block, and advances all started operations.
  [[nodiscard]] base::Result<bool> test();
  // Returns when the operation is complete, or with kRevoked, kDeadlineExceeded or kInvalidArgument
  // (the ranks disagree). Advances all started operations meanwhile.
  [[nodiscard]] base::Status wait();

 private:
  Communicator* communicator_;
  std::uint64_t ticket_;
};

// A failed operation leaves its outputs undefined, and every later operation fails with the same
// status. Only an operation that check() refuses leaves the communicator usable.
class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // Starts `operation`, which fails if `deadline` passes before it is complete. Collective
  // operations run one after the other in the order of their start, messages concurrently with
  // them. Does not block.
  [[nodiscard]] virtual base::Result<Request> start(const Operation& operation,
                                                    base::TimePoint deadline) = 0;
  // start() and wait().
  [[nodiscard]] virtual base::Status run(const Operation& operation, base::TimePoint deadline);

  [[nodiscard]] base::Status allreduce(Input in, Output out, Dtype dtype,
                                       base::TimePoint deadline) {
    return run(Operation::allreduce(in, out, dtype), deadline);
  }
  [[nodiscard]] base::Status broadcast(Output data, int root, base::TimePoint deadline) {
    return run(Operation::broadcast(data, root), deadline);
  }
  [[nodiscard]] base::Status barrier(base::TimePoint deadline) {
    return run(Operation::barrier(), deadline);
  }

  // Sums canonical partial sums (tree_reducer.h) among the ranks of this communicator. Lives as
  // long as this.
  [[nodiscard]] virtual TreeReducer& tree_reducer() = 0;

  // Called by all ranks: those that pass the same color >= 0 form a new communicator, in the order
  // of their ranks here; a rank that passes a negative color gets none (a null pointer). Operations
  // of one member on different communicators also run in the order of their start, so all members
  // must start them in a compatible order.
  [[nodiscard]] virtual base::Result<std::unique_ptr<Communicator>> split(
      int color, base::TimePoint deadline) = 0;

 private:
  friend class Request;
  [[nodiscard]] virtual base::Result<bool> test(std::uint64_t ticket) = 0;
  [[nodiscard]] virtual base::Status wait(std::uint64_t ticket) = 0;
};

}  // namespace regroup::collective

namespace regroup {

using collective::Communicator, collective::Request;

}  // namespace regroup
