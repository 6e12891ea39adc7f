// The POSIX calls with which checkpoints are written and read.
#include "checkpoint/file_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/uninterrupted.h"

namespace regroup::checkpoint {
namespace {

using base::Fd;
using base::Result;
using base::Status;
using base::system_error;
using base::uninterrupted;

constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // Linux moves at most 2 GiB in one call

constexpr std::uint64_t kAhead = 32 << 20, kAheadAtOnce = 8 << 20;
// Longest hint: the kernel ignores the part of a hint beyond the device's own limit.
constexpr std::uint64_t kHintBytes = 512 << 10;

}  // namespace

Result<Fd> open_file(const std::string& path, int flags, unsigned mode) {
  const int fd = uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); });
  if (fd < 0) return system_error("open", path, errno);
  return Fd(fd);
}

Status read_at(int fd, std::uint64_t offset, std::span<std::byte> out, const std::string& path) {
  while (!out.empty()) {
    const ssize_t count = uninterrupted([&] {
      return ::pread(fd, out.data(), std::min(out.size(), kMostAtOnce), static_cast<off_t>(offset));
    });
    if (count < 0) return system_error("pread", path, errno);
    if (count == 0)
      return base::data_loss(fmt::format("{}: unexpected end of file at byte {}", path, offset));
    offset += static_cast<std::uint64_t>(count);
    out = out.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

bool in_page_cache(int fd, std::uint64_t offset, std::uint64_t bytes) {
  constexpr long kCachestat = 451;  // libc of 2022 has no name for it
  struct {
    std::uint64_t offset, bytes;
  } const range{offset, bytes};
  struct {
    std::uint64_t cached, dirty, writeback, evicted, recently_evicted;
  } pages{};
  if (bytes == 0 || ::syscall(kCachestat, fd, &range, &pages, 0) != 0) return false;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return pages.cached > (offset + bytes - 1) / page - offset / page;
}

// Only hints: if one fails, the read that follows reports the error. For bytes that are already in
// the page cache, asking first takes a third of the time of the hint.
void ReadAhead::reached(std::uint64_t offset) {
  const std::uint64_t wanted = std::min(end_, offset + kAhead);
  if (asked_ < offset) asked_ = offset;
  while (asked_ < wanted) {
    const std::uint64_t bytes = std::min(kAheadAtOnce, end_ - asked_);
    const std::uint64_t end = asked_ + bytes;
    if (in_page_cache(fd_, asked_, bytes)) asked_ = end;
    for (; asked_ < end; asked_ = std::min(end, asked_ + kHintBytes)) {
      const auto part = static_cast<off_t>(std::min(kHintBytes, end - asked_));
      (void)::posix_fadvise(fd_, static_cast<off_t>(asked_), part, POSIX_FADV_WILLNEED);
    }
  }
}

Status write_at(int fd, std::uint64_t offset, std::span<const std::byte> bytes,
                const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = uninterrupted([&] {
      return ::pwrite(fd, bytes.data(), std::min(bytes.size(), kMostAtOnce),
                      static_cast<off_t>(offset));
    });
    if (count < 0) return system_error("pwrite", path, errno);
    if (count == 0) return system_error("pwrite", path, ENOSPC);
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

Result<std::uint64_t> size_of(int fd, const std::string& path) {
  struct stat of {};
  if (::fstat(fd, &of) != 0) return system_error("fstat", path, errno);
  if (!S_ISREG(of.st_mode)) return base::data_loss(path + ": not a regular file");
  return static_cast<std::uint64_t>(of.st_size);
}

Result<std::string> read_file(const std::string& path, std::uint64_t at_most) {
  // Opening a pipe would block.
  REGROUP_ASSIGN_OR_RETURN(auto file, open_file(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW));
  REGROUP_ASSIGN_OR_RETURN(const auto size, size_of(file.get(), path));
  if (size > at_most) return base::data_loss(fmt::format("{}: too large, {} bytes", path, size));
  std::string text(size, '\0');
  REGROUP_RETURN_IF_ERROR(read_at(file.get(), 0, std::as_writable_bytes(std::span(text)), path));
  return text;
}

// Not retried after EINTR either: the kernel may have marked the bytes clean already.
Status sync(int fd, const std::string& path) {
  return ::fsync(fd) == 0 ? Status() : system_error("fsync", path, errno);
}

Status sync_folder(const std::string& path) {
  auto folder = open_file(path, O_RDONLY | O_DIRECTORY);
  return folder.ok() ? sync(folder->get(), path) : folder.status();
}

Status write_new_file(const std::string& path, std::string_view bytes, bool durable) {
  REGROUP_ASSIGN_OR_RETURN(auto file, open_file(path, O_WRONLY | O_CREAT | O_EXCL));
  REGROUP_RETURN_IF_ERROR(write_at(file.get(), 0, std::as_bytes(std::span(bytes)), path));
  if (durable) REGROUP_RETURN_IF_ERROR(sync(file.get(), path));
  if (::close(file.release()) != 0)
    return system_error("close", path, errno);  // NFS may report a failed write only here
  return {};
}

Status rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    return system_error("rename", from + " to " + to, errno);
  return {};
}

Status make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? system_error("mkdir", path, error.value()) : Status();
}

Status remove_all(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  return error ? system_error("remove", path, error.value()) : Status();
}

}  // namespace regroup::checkpoint
