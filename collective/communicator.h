// Collective operations among the members of one World. A Communicator is never resized: a new generation
// opens a new one. Describe an operation, then run it, or start it and wait for its Request:
//   comm.run(Operation::allreduce(in, out, Dtype::kFloat32), deadline);
//   auto request = comm.start(Operation::allgather(in, out), deadline);  ...  request->wait();
// The root of a broadcast or scatter, and who only contributes to a reduction or gathering, may be done
// before the others have come: what goes wrong then shows in its next collective operation here, so barrier()
// tells. Every wait has a deadline and sees the revoke of the generation. Not thread-safe. All members start
// the same collective operations in the same order; a difference is an error that names both, in every
// member.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "collective/operation.h"
#include "collective/sum_blocks.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/world.h"

namespace regroup::collective {

// A canonical partial sum that every member of this host can read.
struct Partial {
  core::Interval leaves;
  Input data;
};

class Communicator;

// A started operation. A plain handle: copies mean the same operation. Valid while its communicator lives.
class Request {
 public:
  Request(Communicator* communicator, std::uint64_t ticket) : communicator_(communicator), ticket_(ticket) {}

  // True when it is done. Does not block, and moves all started operations on as far as they get.
  [[nodiscard]] core::Result<bool> test();
  // Returns when it is done, or with kRevoked, kDeadlineExceeded, kInvalidArgument (the ranks disagree).
  // Meanwhile all started operations move on.
  [[nodiscard]] core::Status wait();

 private:
  Communicator* communicator_;
  std::uint64_t ticket_;
};

// After a failure, which leaves outputs undefined, every operation fails likewise. Only what check() refuses
// leaves the communicator as it was.
class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // Starts `operation`, which fails when `deadline` passes before it is done. Collective operations run one
  // after the other in the order of their start; messages run beside them. Does not block.
  [[nodiscard]] virtual core::Result<Request> start(const Operation& operation, core::TimePoint deadline) = 0;
  // start() and wait().
  [[nodiscard]] virtual core::Status run(const Operation& operation, core::TimePoint deadline);

  [[nodiscard]] core::Status allreduce(Input in, Output out, Dtype dtype, core::TimePoint deadline) {
    return run(Operation::allreduce(in, out, dtype), deadline);
  }
  [[nodiscard]] core::Status broadcast(Output data, int root, core::TimePoint deadline) {
    return run(Operation::broadcast(data, root), deadline);
  }
  [[nodiscard]] core::Status barrier(core::TimePoint deadline) { return run(Operation::barrier(), deadline); }

  // Sums `partials`, disjoint canonical nodes that cover the leaves 0..leaves-1, into the shared `result` of
  // this host: each rank of the host writes one slice. Every rank passes partials that it has seen sealed;
  // the bits do not depend on which. When it returns ok the whole result can be read by every rank of the
  // host. The inputs stay intact whatever happens. 16-bit types: leaves only, since a partial sum would be
  // rounded. `blocks`: over several hosts, what all of them have of the result is not summed again, and
  // what has been summed is marked; within one host all is summed, and nothing marked.
  [[nodiscard]] virtual core::Status sum_partials(std::span<const Partial> partials, std::uint32_t leaves,
                                                  Output result, Dtype dtype, core::TimePoint deadline,
                                                  const SumBlocks& blocks) = 0;
  [[nodiscard]] core::Status sum_partials(std::span<const Partial> partials, std::uint32_t leaves,
                                          Output result, Dtype dtype, core::TimePoint deadline) {
    return sum_partials(partials, leaves, result, dtype, deadline, {});
  }

  // Called by all ranks: those that pass the same color >= 0 become a communicator of their own, in the order
  // of their ranks here; whoever passes a negative one gets none (a null pointer). Operations of one member
  // on different communicators run in the order of their start too: start them in an order that fits all.
  [[nodiscard]] virtual core::Result<std::unique_ptr<Communicator>> split(int color,
                                                                          core::TimePoint deadline) = 0;

 private:
  friend class Request;
  [[nodiscard]] virtual core::Result<bool> test(std::uint64_t ticket) = 0;
  [[nodiscard]] virtual core::Status wait(std::uint64_t ticket) = 0;
};

}  // namespace regroup::collective
