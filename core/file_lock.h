// A lock file: of all processes of all jobs on one file system, one holds it, and its text says who.
#pragma once

#include <string>
#include <utility>

#include "core/fd.h"
#include "core/status.h"

namespace regroup::core {

class FileLock {
 public:
  // Makes the file `path` if need be. kUnavailable: somebody else has it; the message has their line `owner`.
  [[nodiscard]] static Result<FileLock> take(const std::string& path, const std::string& owner);
  // For a while, with others who borrow it: nobody takes it, and what it says stays. kNotFound: no such file.
  [[nodiscard]] static Result<FileLock> borrow(const std::string& path);
  // The descriptor() of a lock that another process took.
  [[nodiscard]] static FileLock adopt(Fd file) { return FileLock(std::move(file)); }
  [[nodiscard]] int descriptor() const { return file_.get(); }

 private:
  explicit FileLock(Fd file) : file_(std::move(file)) {}
  Fd file_;  // closed with the last process that has a copy of it
};

}  // namespace regroup::core
