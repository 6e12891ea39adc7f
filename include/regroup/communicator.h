// Collective operations among the members of one World. A Communicator is never resized: each
// generation opens a new one. A program gets one from Session::collective():
//
//   auto status = session->collective([&](regroup::Communicator& comm) -> regroup::Status {
//     const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
//     const auto bytes = std::as_writable_bytes(std::span(&correct, 1));  // an std::int64_t
//     return comm.allreduce(bytes, bytes, regroup::Dtype::kInt64, deadline);
//   });
#pragma once

#include <cstdint>
#include <memory>

#include "regroup/operation.h"
#include "regroup/status.h"
#include "regroup/types.h"

namespace regroup::collective {

class Communicator;
class TreeReducer;

// A handle to a started operation: copies refer to the same operation. Valid while its communicator
// lives. Destroying it does not end the operation, whose memory must live until test() or wait()
// reports that it is complete.
class Request {
 public:
  // For implementations of Communicator; programs get one from start().
  Request(Communicator* communicator, std::uint64_t ticket)
      : communicator_(communicator), ticket_(ticket) {}

  // True when the operation is complete. Does not block, and advances all started operations.
  // Errors are those of wait().
  [[nodiscard]] base::Result<bool> test();
  // Blocks until the operation is complete; advances all started operations meanwhile. kRevoked:
  // the generation is over. kDeadlineExceeded: the operation's deadline has passed; the message
  // names ranks that did not arrive. kInvalidArgument: the ranks started different operations.
  [[nodiscard]] base::Status wait();

 private:
  Communicator* communicator_;
  std::uint64_t ticket_;
};

// Operations among the ranks of one World, from 0 to size() - 1. Describe an operation
// (operation.h), then run it; or start it, compute meanwhile, and wait for its Request:
//
//   Status status = comm.run(Operation::barrier(), deadline);
//   Result<Request> request = comm.start(Operation::allgather(in, out), deadline);
//   if (request.ok()) status = request->wait();
//
// All ranks start the same collective operations in the same order, as in MPI. A difference in
// kind, size, type, reduction or root is kInvalidArgument in every rank, with a message that names
// both operations. A rank that receives nothing (root of broadcast or scatter, non-root of reduce
// or gather) may return before its peers arrive; later errors surface in its next collective, so
// barrier() reports them.
//
// Every wait has a deadline and ends when the generation is revoked (kRevoked: return it, and the
// session regroups). A failed operation leaves its outputs undefined, and every later operation
// fails with the same status. Only an operation that Operation::check() refuses leaves the
// communicator usable.
//
// Not thread-safe: one thread makes all calls of a communicator and of those split from it.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // The rank of this member, from 0 to size() - 1; constant.
  [[nodiscard]] virtual int rank() const = 0;
  // The number of ranks; constant.
  [[nodiscard]] virtual int size() const = 0;

  // Starts `operation`, which fails if `deadline` passes before it is complete. Collective
  // operations run one after the other in the order of their start, messages concurrently with
  // them. Does not block. kInvalidArgument: Operation::check() refuses it. kRevoked, or the status
  // of an operation that failed before.
  [[nodiscard]] virtual base::Result<Request> start(const Operation& operation,
                                                    base::TimePoint deadline) = 0;
  // start() and wait(): blocks until the operation is complete, with the errors of both.
  [[nodiscard]] virtual base::Status run(const Operation& operation, base::TimePoint deadline);

  // run(Operation::allreduce(in, out, dtype)): the sum over all ranks.
  [[nodiscard]] base::Status allreduce(Input in, Output out, Dtype dtype,
                                       base::TimePoint deadline) {
    return run(Operation::allreduce(in, out, dtype), deadline);
  }
  // run(Operation::broadcast(data, root)).
  [[nodiscard]] base::Status broadcast(Output data, int root, base::TimePoint deadline) {
    return run(Operation::broadcast(data, root), deadline);
  }
  // run(Operation::barrier()).
  [[nodiscard]] base::Status barrier(base::TimePoint deadline) {
    return run(Operation::barrier(), deadline);
  }

  // Sums canonical partial sums among the ranks of this communicator: what the session does with
  // gradients (collective/tree_reducer.h, which is not installed). Lives as long as this.
  [[nodiscard]] virtual TreeReducer& tree_reducer() = 0;

  // To be called by all ranks. Ranks that pass the same color >= 0 form a new communicator, in the
  // order of their ranks here; a rank that passes a negative color gets a null pointer. Operations
  // of one member on different communicators also run in the order of their start, so all members
  // must start them in a compatible order. Blocks until all ranks have called it. Order, deadline
  // and errors are those of a collective operation.
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
