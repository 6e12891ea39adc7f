// By flock(), which the kernel releases when the process ends.
#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/printable.h"

namespace regroup::base {

namespace {

Result<Fd> open_locked(const std::string& path, int flags, int lock) {
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0644));
  if (!file.valid()) return system_error("open", path, errno);
  if (::flock(file.get(), lock | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return system_error("flock", path, errno);
    std::array<char, 512> holder{};
    const ssize_t bytes = ::pread(file.get(), holder.data(), holder.size(), 0);
    std::string text(holder.data(), static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
    text.resize(text.find_last_not_of(" \n") + 1);
    return unavailable(path + ": " + (text.empty() ? "another process" : escaped(text)) +
                       " has it");
  }
  return file;
}

}  // namespace

Result<FileLock> FileLock::take(const std::string& path, const std::string& owner) {
  REGROUP_ASSIGN_OR_RETURN(auto opened, open_locked(path, O_CREAT, LOCK_EX));
  Fd file = std::move(opened);
  if (::ftruncate(file.get(), 0) != 0) return system_error("ftruncate", path, errno);
  if (::pwrite(file.get(), owner.data(), owner.size(), 0) < 0)
    return system_error("pwrite", path, errno);
  return FileLock(std::move(file));
}

Result<FileLock> FileLock::borrow(const std::string& path) {
  REGROUP_ASSIGN_OR_RETURN(auto file, open_locked(path, 0, LOCK_SH));
  return FileLock(std::move(file));
}

}  // namespace regroup::base
