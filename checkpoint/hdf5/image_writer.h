// Writes a file's bytes in one pass, at the speed of the device, with their checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/manifest.h"

namespace regroup::checkpoint::hdf5 {

struct WriteOptions {
  bool direct = true;  // O_DIRECT; without it, or where the file system refuses it, the page cache
  // io_uring; without it, or where the kernel refuses it, one write after the other.
  bool uring = true;
  bool commits = true;  // the process that writes commits as well, if it is the only writer
  // Called often while the disk takes what is written; may be empty.
  std::function<void()> moved = {};
};

// Bytes of the file, and where to put their checksums: offset and bytes of `range` are filled in.
struct Extent {
  std::span<const std::byte> bytes;
  Range* range;
};

// Writes `extents`, which are in ascending order and cover `file_bytes` without a gap, over the
// existing file `path`, and fills in the checksums. Ok: they are on the disk. An error is final for
// this file.
[[nodiscard]] base::Status write_image(const std::string& path, std::span<const Extent> extents,
                                       std::uint64_t file_bytes, const WriteOptions& options);

}  // namespace regroup::checkpoint::hdf5
