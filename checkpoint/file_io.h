// File calls that complete (they repeat system calls that were interrupted or transferred less) or
// return an error that names the call and the file. None retries a failed fsync().
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
// Reads out.size() bytes from `offset`. kDataLoss: the file ends before that.
[[nodiscard]] base::Status read_at(int fd, std::uint64_t offset, std::span<std::byte> out,
                                   const std::string& path);
[[nodiscard]] base::Status write_at(int fd, std::uint64_t offset, std::span<const std::byte> bytes,
                                    const std::string& path);
[[nodiscard]] base::Result<std::uint64_t> size_of(int fd, const std::string& path);
[[nodiscard]] base::Result<std::string> read_file(const std::string& path, std::uint64_t at_most);

// True if all these bytes are in the page cache. False also if that is unknown: with a kernel
// before 6.5, or for another user's file.
[[nodiscard]] bool in_page_cache(int fd, std::uint64_t offset, std::uint64_t bytes);

// Asks the kernel to read ahead of a reader of a whole file, so that the device does not idle.
class ReadAhead {
 public:
  // Reads ahead in the open file `fd`, up to byte `end`.
  ReadAhead(int fd, std::uint64_t end) : fd_(fd), end_(end) {}
  [[nodiscard]] int fd() const { return fd_; }
  // The reader is about to read from `offset` on.
  void reached(std::uint64_t offset);

 private:
  const int fd_;
  const std::uint64_t end_;
  std::uint64_t asked_ = 0;  // all bytes before this were requested
};

// Waits until the file's bytes, or a folder's entries, are on disk. After an error they may never
// be; the caller must write them again, to another file.
[[nodiscard]] base::Status sync(int fd, const std::string& path);
[[nodiscard]] base::Status sync_folder(const std::string& path);
// Creates a file with these bytes; an error if it exists. With `durable` it is on disk on return.
[[nodiscard]] base::Status write_new_file(const std::string& path, std::string_view bytes,
                                          bool durable = true);
[[nodiscard]] base::Status rename_path(const std::string& from, const std::string& to);
// Creates a folder and its missing parents; ok if it exists.
[[nodiscard]] base::Status make_folder(const std::string& path);
// Removes a file, or a folder with its contents; ok if it does not exist.
[[nodiscard]] base::Status remove_all(const std::string& path);

}  // namespace regroup::checkpoint
