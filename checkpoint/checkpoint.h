// Reading checkpoints: no HDF5 is needed, every block is verified before a byte of it is believed.
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

// An open checkpoint. Used by one thread at a time; moving files away from under it makes reads
// fail.
class Checkpoint {
 public:
  // Reads the manifest and looks whether all files are there with their sizes. kDataLoss: damaged.
  [[nodiscard]] static base::Result<Checkpoint> open(const std::string& path);

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // Index of a tensor; nothing if there is none of that name.
  [[nodiscard]] std::optional<std::size_t> find(const std::string& name) const;
  // `box` of a tensor, row by row, into `out`, which is of that size. On an error `out` holds
  // garbage. kDataLoss: the bytes are not those that were written; the message says where.
  [[nodiscard]] base::Status read(std::size_t tensor, const Box& box,
                                  std::span<std::byte> out) const;
  [[nodiscard]] base::Status read(std::size_t tensor, std::span<std::byte> out) const;  // all of it
  // All of it in order, in parts that are verified, which `take` may keep and leave another buffer
  // for. Ends at its first error.
  using TakePart = std::function<base::Status(std::vector<std::byte>& part)>;
  [[nodiscard]] base::Status read_parts(std::size_t tensor, const TakePart& take) const;

 private:
  Checkpoint(std::string path, Manifest manifest);

  std::string path_;
  Manifest manifest_;
  std::unordered_map<std::string, std::size_t> index_;  // of the tensors, by name
  std::vector<base::Fd> files_;                         // of manifest_.files
};

struct Progress {
  std::uint64_t done = 0, total = 0;  // bytes
};
using OnProgress = std::function<void(const Progress&)>;  // may be empty

// CRC32C of bytes [offset, offset + bytes) of an open file by a quicker way than reading them;
// nothing: there is none. By several threads.
using QuickSum =
    std::function<std::optional<std::uint32_t>(int fd, std::uint64_t offset, std::uint64_t bytes)>;

// Whether every byte of every file is as it was written; names all that is damaged or cannot be
// read, up to 100 things. kDataLoss. Any thread. A large one is read by up to `threads` threads,
// this one among them, of which one at a time calls on_progress. What is not good by `quick_sum` is
// read.
[[nodiscard]] base::Status verify(const std::string& path, const OnProgress& on_progress = {},
                                  unsigned threads = 1, const QuickSum& quick_sum = {});

struct Newest {
  proto::Step step = 0;
  std::string path;
};
// Where checkpoints may be. `aside`: the caller holds its lock, and damaged ones are set aside
// there.
struct Place {
  std::string directory;
  bool aside = false;
};
// The newest checkpoint of all `places` all of whose bytes are good, of equal steps that of the
// place named first; nothing if there is none, or no directory. What is older is not read, nor what
// comes second. Damaged ones on the way are told to `say`.
[[nodiscard]] base::Result<std::optional<Newest>> newest_good(const std::vector<Place>& places,
                                                              const Say& say,
                                                              const OnProgress& on_progress = {});
[[nodiscard]] base::Result<std::optional<Newest>> newest_good(const std::string& directory,
                                                              bool aside, const Say& say,
                                                              const OnProgress& on_progress = {});

}  // namespace regroup::checkpoint
