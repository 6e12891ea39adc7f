// The attempts of a job with checkpoints: how often it was started and how each start ended. They
// are recorded in DIRECTORY/ATTEMPTS, next to the checkpoints, for the next start of the job.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <utility>

#include "base/status.h"
#include "launcher/agent/agent.h"
#include "launcher/spec/request.h"
#include "membership/coordinator/coordinator_effects.h"

namespace regroup::job {

// Records a new attempt as running and returns all counts. The caller holds the lock of
// `directory`. If `directory` is empty nothing is recorded, and the count is that of the
// allocator's restarts in `environment`. A file that cannot be read counts as none, with a warning
// on standard error. kDeadlineExceeded: the directory has not answered for 10 s. Forks a child, so
// the process must have one thread only.
[[nodiscard]] base::Result<membership::Attempt> count_attempt(const std::string& directory,
                                                              const spec::Environment& environment);

// Records how the attempt ends; an attempt without a record was killed. A detached thread writes,
// so that a directory that hangs cannot block the agent's process. Failures are printed on standard
// error.
class AttemptLog {
 public:
  explicit AttemptLog(std::string directory) : directory_(std::move(directory)) {}

  // The attempt is preempted. Recorded at once, because the process may be killed before ended().
  void noticed();
  // The attempt has ended as `agent` says, or could not start. Waits up to 10 s.
  void ended(const agent::Agent& agent);
  void failed();

 private:
  void record(std::function<void(membership::Attempt&)> count);
  void await();

  const std::string directory_;
  std::future<base::Status> written_;
};

}  // namespace regroup::job
