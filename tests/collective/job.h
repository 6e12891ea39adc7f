// The job that a backend provides for the conformance suite (conformance.h). Its ranks are threads
// or processes; the test acts as its agent.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collective/tree_reducer.h"
#include "proto/world.h"
#include "regroup/communicator.h"
#include "tests/collective/reference.h"

namespace regroup::collective::testing {

class TestJob {
 public:
  using Body = std::function<void(TestJob&, int rank)>;

  virtual ~TestJob() = default;

  // To be called in a rank: opens its communicator of `world`, in which rank r of the job has slot
  // r.
  [[nodiscard]] virtual base::Result<std::unique_ptr<Communicator>> open(const proto::World& world,
                                                                         int rank) = 0;
  // To be called in a rank: it will no longer access the memory of `g`.
  virtual void leave(proto::Generation g, int rank) = 0;
  // Acts as the agent: revokes `g` for all ranks.
  virtual void revoke(proto::Generation g) = 0;
  // Acts as the agent: marks `rank` dead. The test has reaped its process.
  virtual void bury(int rank) = 0;
  // Acts as the agent: prepares the slot of the dead `rank` for a new process or thread.
  virtual void replace(int rank) = 0;
  // Where this rank's sums of gradients are made: by the communicator that it has opened, of memory
  // of the host and of all types, unless the backend says otherwise.
  [[nodiscard]] virtual TreeReducer& reducer(Communicator& opened, int /*rank*/) {
    return opened.tree_reducer();
  }
  [[nodiscard]] virtual std::span<const Dtype> summed() const { return kDtypes; }
  // The host that holds each leaf of the rank's next sum.
  virtual void set_holders(const std::vector<proto::NodeId>& /*of_leaves*/, int /*rank*/) {}
  // The memory for the result of the rank's next sum, given that which the ranks of its host share.
  [[nodiscard]] virtual Output result(Output shared, int /*rank*/) { return shared; }
  // `values` in memory from which the rank's sums are made, valid until the next result().
  [[nodiscard]] virtual std::span<const std::byte> partial(std::span<const std::byte> values,
                                                           int /*rank*/) {
    return values;
  }
  // What a result of the rank holds.
  [[nodiscard]] virtual Bytes read(Output result, int /*rank*/) {
    return {result.begin(), result.end()};
  }
  // The host of a rank.
  [[nodiscard]] virtual proto::NodeId host_of(int /*rank*/) const { return 0; }
  // To be called in a forked process: returns the job for use in it.
  [[nodiscard]] virtual std::unique_ptr<TestJob> in_child() = 0;
};

struct Backend {
  const char* name;
  bool processes;  // ranks are processes, which can be killed and stopped
  std::unique_ptr<TestJob> (*make)(int ranks);
  // Messages of a rank that dies right after an operation may be lost (docs/design/ucx.md, Acks).
  bool messages_may_be_lost = false;
};

// Makes the World of generation `g`, with rank r in slot r of node 0, without the ranks in
// `absent`.
[[nodiscard]] proto::World make_job_world(proto::Generation g, int ranks,
                                          const std::vector<int>& absent = {});

}  // namespace regroup::collective::testing
