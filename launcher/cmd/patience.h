// A file system that does not answer hangs whoever asks it, for ever as a rule. So other processes ask it for
// a job that is about to begin, and this one waits for them so long and no longer.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/file_lock.h"
#include "core/status.h"

namespace regroup::cmd {

struct LockWait {
  core::Duration answer{};                           // for the directory to answer
  core::Duration ending{};                           // for a job whose launcher is gone to end
  std::function<void(const std::string&)> say = {};  // told once that such a job is waited for
};
// Takes the lock in the file LOCK of `directory`, which then says `owner` ("job ID (process PID on HOST)").
// Makes the directory if it is not there; without `make`, returns nothing then. A job whose launcher is gone
// from this host is ending: its end is waited for, for `wait.ending`, and `wait.say` told so.
// kUnavailable: another job has the directory (at once if its launcher lives; the message names it), or a
// signal came meanwhile. kDeadlineExceeded: no answer within `wait.answer`. For a process of one thread.
[[nodiscard]] core::Result<std::optional<core::FileLock>> take_directory(const std::string& directory,
                                                                         const std::string& owner, bool make,
                                                                         const LockWait& wait);
// Whether the process that `holder`, the text of a LOCK, names ran on the host that `owner` names, and is
// gone.
[[nodiscard]] bool launcher_is_gone(const std::string& holder, const std::string& owner);

// Locks that a process holds to its end, or until give_back(). What gives them back is then the kernel, which
// a directory that does not answer any more may keep waiting, and the process with it; that has said by then
// why it ends.
class HeldLocks {
 public:
  HeldLocks() = default;
  HeldLocks(const HeldLocks&) = delete;
  HeldLocks& operator=(const HeldLocks&) = delete;
  ~HeldLocks();
  void add(core::FileLock lock) { locks_.push_back(std::move(lock)); }
  // All those whose HeldLocks is gone. Waits as the end of the process would.
  static void give_back() { kept().clear(); }

 private:
  [[nodiscard]] static std::vector<core::FileLock>& kept();
  std::vector<core::FileLock> locks_;
};

// What `work` returns, 8 KiB at most, in a child of this process, which is of one thread; `about` names in
// errors what it asks. kDeadlineExceeded: no answer within `limit`, and what `work` does may still be done.
[[nodiscard]] core::Result<std::string> ask_child(const std::function<core::Result<std::string>()>& work,
                                                  const std::string& about, core::Duration limit);

// What regroup-persist prints, whose arguments are `words`; its standard error is ours. kDeadlineExceeded:
// nothing came from it, nor its end, for as long as `quiet`. `about` names in errors what it looks into.
[[nodiscard]] core::Result<std::string> ask_persist(std::vector<std::string> words, const std::string& about,
                                                    core::Duration quiet);

}  // namespace regroup::cmd
