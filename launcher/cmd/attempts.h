// How often a job was begun that goes on from its checkpoints, and how it ended each time: kept beside them,
// in DIRECTORY/ATTEMPTS, so that who starts it again finds it.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <utility>

#include "core/status.h"
#include "elastic/membership/coordinator_effects.h"
#include "launcher/options/request.h"
#include "launcher/supervise/agent.h"

namespace regroup::cmd {

// Counts one more, which is running now; whoever calls holds the lock of the directory. Empty: nothing is
// kept, and `environment` tells how often an allocator has started the job again. A file that cannot be read
// counts as none, and is told of on standard error. kDeadlineExceeded: the directory has not answered for
// 10 s. For a process of one thread: a child asks.
[[nodiscard]] core::Result<membership::Attempt> count_attempt(const std::string& directory,
                                                              const launcher::Environment& environment);

// Keeps how the job ends. One of which nothing is kept was killed. For the agent's process, which a directory
// that hangs must not hold: a thread writes, and is left behind. What it could not do it says.
class AttemptLog {
 public:
  explicit AttemptLog(std::string directory) : directory_(std::move(directory)) {}

  // It was preempted: its time may be over before it is.
  void noticed();
  // It is over, as `agent` says, or could not begin. Waits up to 10 s.
  void ended(const launcher::Agent& agent);
  void failed();

 private:
  void record(std::function<void(membership::Attempt&)> count);
  void await();

  const std::string directory_;
  std::future<core::Status> written_;
};

}  // namespace regroup::cmd
