// A lock file. At most one process of all jobs that share the file system holds it; its text names
// the owner.
#pragma once

#include <string>
#include <utility>

#include "base/fd.h"
#include "base/status.h"

namespace regroup::base {

class FileLock {
 public:
  // Creates the file `path` if it does not exist, and locks it. kUnavailable: another process holds
  // it; the message quotes its `owner` text.
  [[nodiscard]] static Result<FileLock> take(const std::string& path, const std::string& owner);
  // Takes a shared lock: others may borrow too, none may take it, and the text stays. kNotFound: no
  // such file.
  [[nodiscard]] static Result<FileLock> borrow(const std::string& path);
  // Adopts the descriptor() of a lock that another process took.
  [[nodiscard]] static FileLock adopt(Fd file) { return FileLock(std::move(file)); }
  [[nodiscard]] int descriptor() const { return file_.get(); }

 private:
  explicit FileLock(Fd file) : file_(std::move(file)) {}
  Fd file_;  // the lock ends when the last process with a copy has closed it
};

}  // namespace regroup::base
