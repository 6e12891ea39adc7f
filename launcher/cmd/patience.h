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

// The lock in the file LOCK of `directory`, which then says `owner`; it is ours when this returns. The
// directory is made if it is not there, or, without `make`, nothing is returned. kUnavailable: another job
// has it, which the message names. kDeadlineExceeded: no answer within `limit`. For a process of one thread.
[[nodiscard]] core::Result<std::optional<core::FileLock>> take_directory(const std::string& directory,
                                                                         const std::string& owner, bool make,
                                                                         core::Duration limit);

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
