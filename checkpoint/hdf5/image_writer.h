// Writes the bytes of a file in one pass, at the speed of the device, and computes their checksums.
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
  bool direct = true;  // use O_DIRECT, unless the file system refuses it; else the page cache
  bool uring = true;   // use io_uring, unless the kernel refuses it; else one write after the other
  bool commits = true;  // if this is the only writer, it will also commit
  // Called often while the disk accepts data; may be empty.
  std::function<void()> moved = {};
  // Called by commit() with the manifests of all writers, by number, before it merges them; may be
  // empty. Its error ends the commit.
  std::function<base::Status(std::vector<Manifest>&)> settle = {};
};

// A part of the file. write_image() puts its checksums into `range`, whose offset and bytes are
// set.
struct Extent {
  std::span<const std::byte> bytes;
  Range* range;
};

// Overwrites the existing file `path` with `extents`, which are ascending and cover `file_bytes`
// without a gap, and fills in the checksums. On ok the bytes are on disk. After an error the file
// cannot be used.
[[nodiscard]] base::Status write_image(const std::string& path, std::span<const Extent> extents,
                                       std::uint64_t file_bytes, const WriteOptions& options);

}  // namespace regroup::checkpoint::hdf5
