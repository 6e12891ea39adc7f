// Reads checkpoints, without HDF5. Every block is verified before any byte of it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"
#include "checkpoint/reshard.h"

namespace regroup::checkpoint {

// An open checkpoint. Used by one thread at a time. Files that are removed meanwhile make reads
// fail.
class Checkpoint {
 public:
  // Reads the manifest and checks that all files exist with the right sizes. kDataLoss: damaged.
  [[nodiscard]] static base::Result<Checkpoint> open(const std::string& path);

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // The index of the tensor `name`; empty if there is none.
  [[nodiscard]] std::optional<std::size_t> find(const std::string& name) const;
  // Reads `box` of a tensor, row by row, into `out`, which must have that size. On an error `out`
  // is undefined. kDataLoss: bytes differ from those that were written; the message says where.
  [[nodiscard]] base::Status read(std::size_t tensor, const Box& box,
                                  std::span<std::byte> out) const;
  // Reads a whole tensor.
  [[nodiscard]] base::Status read(std::size_t tensor, std::span<std::byte> out) const;
  // Reads a whole tensor in verified parts, in order, and calls `take` for each; `take` may keep
  // `part` if it leaves another buffer in its place. Stops at the first error of `take`.
  using TakePart = std::function<base::Status(std::vector<std::byte>& part)>;
  [[nodiscard]] base::Status read_parts(std::size_t tensor, const TakePart& take) const;

 private:
  Checkpoint(std::string path, Manifest manifest);

  std::string path_;
  Manifest manifest_;
  std::unordered_map<std::string, std::size_t> index_;  // of each tensor, by name
  std::vector<base::Fd> files_;                         // in the order of manifest_.files
};

struct Progress {
  // Bytes.
  std::uint64_t done = 0;
  std::uint64_t total = 0;
};
using OnProgress = std::function<void(const Progress&)>;  // may be empty

// Returns the CRC32C of bytes [offset, offset + bytes) of an open file by a faster way than reading
// them; empty if that is impossible. Several threads call it.
using QuickSum =
    std::function<std::optional<std::uint32_t>(int fd, std::uint64_t offset, std::uint64_t bytes)>;

// Verifies that every byte of every file is as it was written. kDataLoss: the message names up to
// 100 places that are damaged or unreadable. Any thread. Up to `threads` threads (including the
// caller's) read a large checkpoint; one at a time calls `on_progress`. A block whose `quick_sum`
// is empty or wrong is read.
[[nodiscard]] base::Status verify(const std::string& path, const OnProgress& on_progress = {},
                                  unsigned threads = 1, const QuickSum& quick_sum = {});

struct Newest {
  proto::Step step = 0;
  std::string path;
};
// A directory in which to search for checkpoints.
struct Place {
  std::string directory;
  bool aside = false;  // set damaged checkpoints aside there; the caller must hold the lock
};
// The newest checkpoint in `places` whose bytes are all good; for equal steps, the one whose place
// is listed first. Empty if there is none or no directory exists. Does not read older checkpoints.
// Calls `say` for each damaged one that it skips.
[[nodiscard]] base::Result<std::optional<Newest>> newest_good(const std::vector<Place>& places,
                                                              const Say& say,
                                                              const OnProgress& on_progress = {});
[[nodiscard]] base::Result<std::optional<Newest>> newest_good(const std::string& directory,
                                                              bool aside, const Say& say,
                                                              const OnProgress& on_progress = {});

}  // namespace regroup::checkpoint
