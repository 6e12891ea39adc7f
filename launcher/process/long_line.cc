// The file is created at the first append(), which reads $TMPDIR.
#include "launcher/process/long_line.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

namespace regroup::process {
namespace {

// Some file systems lack O_TMPFILE.
base::Fd open_unnamed(const std::string& folder) {
  base::Fd file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.valid() || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  std::string path = folder + "/regroup-line-XXXXXX";
  file.reset(::mkostemp(path.data(), O_CLOEXEC));
  if (file.valid()) ::unlink(path.c_str());
  return file;
}

}  // namespace

base::Status LongLine::append(std::string_view bytes) {
  if (size_ + bytes.size() > kMost)
    return base::resource_exhausted(fmt::format("it is longer than {} MiB", kMost >> 20));
  if (!file_.valid()) {
    std::error_code error;
    const std::string folder = std::filesystem::temp_directory_path(error);
    int why = error.value();
    if (!error) file_ = open_unnamed(folder), why = errno;
    for (const char* other : {"/tmp", "/var/tmp", "/dev/shm"}) {
      if (!file_.valid()) file_ = open_unnamed(other);
    }
    if (!file_.valid()) return base::system_error("open", error ? "$TMPDIR" : folder, why);
  }
  std::uint64_t end = size_;
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(end));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return base::system_error("write", "a file in $TMPDIR", errno);
    end += static_cast<std::uint64_t>(count);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  size_ = end;
  return {};
}

std::size_t LongLine::read(std::uint64_t at, std::span<char> space) const {
  const std::size_t most = std::min<std::uint64_t>(space.size(), size_ - std::min(at, size_));
  for (;;) {
    const ssize_t count = ::pread(file_.get(), space.data(), most, static_cast<off_t>(at));
    if (count >= 0 || errno != EINTR) return count > 0 ? static_cast<std::size_t>(count) : 0;
  }
}

void LongLine::clear() {
  file_.reset();
  size_ = 0;
}

}  // namespace regroup::process
