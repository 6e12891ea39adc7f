// Files by descriptors: the system's calls, which may be interrupted or do half, done whole or with
// an error that names call and object. Nothing here tries a failed fsync again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"

namespace regroup::checkpoint {

[[nodiscard]] base::Result<base::Fd> open_file(const std::string& path, int flags,
                                               unsigned mode = 0644);
// All of `out` from `offset`. kDataLoss: the file ends before.
[[nodiscard]] base::Status read_at(int fd, std::uint64_t offset, std::span<std::byte> out,
                                   const std::string& path);
[[nodiscard]] base::Status write_at(int fd, std::uint64_t offset, std::span<const std::byte> bytes,
                                    const std::string& path);
[[nodiscard]] base::Result<std::uint64_t> size_of(int fd, const std::string& path);
[[nodiscard]] base::Result<std::string> read_file(const std::string& path, std::uint64_t at_most);

// Whether all of these bytes are in the page cache. False also where nobody can say: a kernel
// before 6.5, another user's file.
[[nodiscard]] bool in_page_cache(int fd, std::uint64_t offset, std::uint64_t bytes);

// Asks the kernel for the bytes ahead of a reader of a whole file, so that the device does not wait
// for it.
class ReadAhead {
 public:
  // Of the open file `fd`, up to byte `end`.
  ReadAhead(int fd, std::uint64_t end) : fd_(fd), end_(end) {}
  [[nodiscard]] int fd() const { return fd_; }
  // The reader is about to read from `offset` on.
  void reached(std::uint64_t offset);

 private:
  const int fd_;
  const std::uint64_t end_;
  std::uint64_t asked_ = 0;  // all before it
};

// The file's bytes, or a folder's entries, are on the disk when this returns ok. An error means
// that they may never be: what was written is to be written again, to another file.
[[nodiscard]] base::Status sync(int fd, const std::string& path);
[[nodiscard]] base::Status sync_folder(const std::string& path);
// A file that was not there, with these bytes; with `durable` they are on the disk.
[[nodiscard]] base::Status write_new_file(const std::string& path, std::string_view bytes,
                                          bool durable = true);
[[nodiscard]] base::Status rename_path(const std::string& from, const std::string& to);
// With those above it; ok if it is there.
[[nodiscard]] base::Status make_folder(const std::string& path);
// A file, or a folder with all in it; ok if it is not there.
[[nodiscard]] base::Status remove_all(const std::string& path);

}  // namespace regroup::checkpoint
