// A child of this process whose end somebody waits for by its number, while others, who wait for any child
// (Crew, kill_descendants), may reap it first: they keep its status here.
#pragma once

#include <sys/types.h>

#include <optional>

namespace regroup::launcher {

class KeptChild {
 public:
  // `pid` has been forked and is not reaped yet.
  explicit KeptChild(pid_t pid);
  ~KeptChild();
  KeptChild(const KeptChild&) = delete;
  KeptChild& operator=(const KeptChild&) = delete;

  // As of waitpid(), once another has reaped it; from then on its number may be another process's.
  [[nodiscard]] std::optional<int> status() const { return status_; }

  // Whoever reaps any child tells of each. Any thread.
  static void reaped(pid_t pid, int status);

 private:
  const pid_t pid_;
  std::optional<int> status_;
};

}  // namespace regroup::launcher
