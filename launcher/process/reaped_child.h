// Exit status of a child process that another part of this process may reap first: ProcessTable and
// kill_descendants() wait for any child, and record here the status of each child that they reap.
#pragma once

#include <sys/types.h>

#include <optional>

namespace regroup::process {

// Registers one child from construction to destruction, for the code that waits for this child by
// its pid.
class ReapedChild {
 public:
  // `pid` has been forked and is not reaped yet.
  explicit ReapedChild(pid_t pid);
  ~ReapedChild();
  ReapedChild(const ReapedChild&) = delete;
  ReapedChild& operator=(const ReapedChild&) = delete;

  // The wait status, as waitpid() gives it, once other code has reaped the child; from then on the
  // pid may be another process's.
  [[nodiscard]] std::optional<int> status() const { return status_; }

  // To be called for each child that was reaped by waiting for any child. Ignores unregistered
  // pids. Any thread.
  static void record(pid_t pid, int status);

 private:
  const pid_t pid_;
  std::optional<int> status_;
};

}  // namespace regroup::process
