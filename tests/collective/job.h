// What a backend provides to the conformance suite: a job whose ranks are threads or processes. The
// test acts as its agent. A backend joins the suite with one Backend and one
// INSTANTIATE_TEST_SUITE_P.
#pragma once

#include <functional>
#include <memory>

#include "proto/world.h"
#include "regroup/communicator.h"

namespace regroup::collective::testing {

class Job {
 public:
  using Body = std::function<void(Job&, int rank)>;

  virtual ~Job() = default;

  // In a rank: its communicator of `world`, in which rank r of the job has slot r.
  [[nodiscard]] virtual base::Result<std::unique_ptr<Communicator>> open(const proto::World& world,
                                                                         int rank) = 0;
  // In a rank: it will not access the memory of `g` any more.
  virtual void leave(proto::Generation g, int rank) = 0;
  // As the agent: `g` is over for all.
  virtual void revoke(proto::Generation g) = 0;
  // As the agent: `rank` is dead; its process was waited for.
  virtual void bury(int rank) = 0;
  // As the agent: a new process or thread will replace the dead `rank`.
  virtual void replace(int rank) = 0;
  // On which host a rank is.
  [[nodiscard]] virtual proto::NodeId host_of(int /*rank*/) const { return 0; }
  // In a forked process: the job as seen there.
  [[nodiscard]] virtual std::unique_ptr<Job> in_child() = 0;
};

struct Backend {
  const char* name;
  bool processes;  // ranks are processes, which can be killed and stopped
  std::unique_ptr<Job> (*make)(int ranks);
  // A rank that dies right after an operation may take messages with it that others need
  // (docs/design/ucx.md, Acks).
  bool messages_may_be_lost = false;
};

// Generation `g`, rank r in slot r of node 0, without those in `absent`.
[[nodiscard]] proto::World make_job_world(proto::Generation g, int ranks,
                                          const std::vector<int>& absent = {});

}  // namespace regroup::collective::testing
