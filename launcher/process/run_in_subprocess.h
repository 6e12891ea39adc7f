// Runs file system calls that may block indefinitely (a hung NFS mount, for example) in a child
// process, so that the launcher can time out. A child in uninterruptible sleep cannot be reaped: it
// is killed and abandoned. All calls are for a process of one thread, since they fork.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_lock.h"
#include "base/status.h"

namespace regroup::process {

struct LockWait {
  base::Duration answer{};  // limit for the file system to answer
  base::Duration ending{};  // limit for a job whose launcher is gone to end
  // Called once when such a job is being waited for.
  std::function<void(const std::string&)> say = {};
};
// Locks the file LOCK of `directory` and writes `owner` ("job ID (process PID on HOST)") into it.
// With `make` creates a missing directory; without it returns nothing for one. If the lock is held
// by a job whose launcher has gone from this host, that job is ending: calls `wait.say` and waits
// up to `wait.ending`. kUnavailable: another job holds the lock (at once if its launcher runs; the
// message names it), or a signal came meanwhile. kDeadlineExceeded: no answer within `wait.answer`.
[[nodiscard]] base::Result<std::optional<base::FileLock>> take_directory(
    const std::string& directory, const std::string& owner, bool make, const LockWait& wait);
// True if the process that `holder` (the text of a LOCK) names ran on the host that `owner` names,
// and has ended.
[[nodiscard]] bool launcher_is_gone(const std::string& holder, const std::string& owner);

// Locks that a process holds until it ends or calls release_all(). At the end the kernel releases
// them, which can block on a hung file system; by then the process has reported why it ends.
class HeldLocks {
 public:
  HeldLocks() = default;
  HeldLocks(const HeldLocks&) = delete;
  HeldLocks& operator=(const HeldLocks&) = delete;
  ~HeldLocks();
  void add(base::FileLock lock) { locks_.push_back(std::move(lock)); }
  // Releases the locks of all destroyed HeldLocks. May block as the end of the process would.
  static void release_all() { kept().clear(); }

 private:
  [[nodiscard]] static std::vector<base::FileLock>& kept();
  std::vector<base::FileLock> locks_;
};

// Runs `work` in a child process and returns its result, of at most 8 KiB. `about` names the
// subject in errors. kDeadlineExceeded: no result within `limit`; `work` may still take effect
// later.
[[nodiscard]] base::Result<std::string> run_in_subprocess(
    const std::function<base::Result<std::string>()>& work, const std::string& about,
    base::Duration limit);

// Runs regroup-persist with `arguments` and returns its standard output; its standard
// error is ours. `about` names the subject in errors. kDeadlineExceeded: it printed nothing, nor
// ended, for `quiet`.
[[nodiscard]] base::Result<std::string> run_persist(std::vector<std::string> arguments,
                                                    const std::string& about, base::Duration quiet);

}  // namespace regroup::process
