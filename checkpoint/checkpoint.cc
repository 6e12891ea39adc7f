// Reads parts of tensors out of shard files. A block is read as a whole.
#include "checkpoint/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>

#include "base/printable.h"
#include "checkpoint/block_sum.h"
#include "checkpoint/chain.h"
#include "checkpoint/dtype.h"
#include "checkpoint/file_io.h"
#include "checkpoint/parallel.h"

namespace regroup::checkpoint {
namespace {

using base::Code;
using base::Status;

constexpr std::uint64_t kLargestManifest = std::uint64_t{1} << 30;
constexpr std::uint64_t kMostThreads = 4;  // these nearly saturate the memory bandwidth

// Reads one piece block by block, several blocks in parallel if there are many. Keeps the last
// block of which the caller wanted only a part.
class BlockReader {
 public:
  // The caller will read nothing from byte `end` of the piece on.
  BlockReader(int fd, std::string path, const Range& range, std::uint64_t end)
      : fd_(fd), path_(std::move(path)), range_(range), ahead_(fd, range.offset + end) {}

  // Reads bytes [from, from + out.size()) of the piece.
  Status read(std::uint64_t from, std::span<std::byte> out) {
    while (!out.empty()) {
      const std::uint64_t block = from / kBlock, begin = from % kBlock, size = size_of_block(block);
      std::size_t part = std::min<std::uint64_t>(out.size(), size - begin);
      if (part == size) {
        // Together with all whole blocks after it; only the piece's last block may be short.
        part = from + out.size() == range_.bytes ? out.size() : out.size() / kBlock * kBlock;
        REGROUP_RETURN_IF_ERROR(read_blocks(block, out.first(part)));
      } else {
        REGROUP_RETURN_IF_ERROR(hold(block));
        std::memcpy(out.data(), held_.data() + begin, part);
      }
      from += part;
      out = out.subspan(part);
    }
    return {};
  }

 private:
  [[nodiscard]] std::uint64_t size_of_block(std::uint64_t block) const {
    return std::min(kBlock, range_.bytes - block * kBlock);
  }

  Status hold(std::uint64_t block) {
    if (held_block_ == block) return {};
    held_block_.reset();
    held_.resize(size_of_block(block));
    REGROUP_RETURN_IF_ERROR(read_block(block, held_));
    held_block_ = block;
    return {};
  }

  // Reads whole blocks from `first` on. Stops at the first error.
  Status read_blocks(std::uint64_t first, std::span<std::byte> out) {
    std::atomic<std::uint64_t> next = 0;
    std::atomic<bool> ended = false;
    Status error;
    const auto work = [&] {
      for (std::uint64_t at; !ended && (at = next.fetch_add(kBlock)) < out.size();) {
        const Status status = read_block(
            first + at / kBlock, out.subspan(at, std::min<std::uint64_t>(kBlock, out.size() - at)));
        if (!status.ok() && !ended.exchange(true)) error = status;
      }
    };
    run_parallel(threads_for(range_.offset + first * kBlock, out.size()), work);
    return error;
  }

  // A device is faster with one reader and read-ahead than with several readers.
  [[nodiscard]] std::uint64_t threads_for(std::uint64_t offset, std::uint64_t bytes) const {
    const std::uint64_t worth = std::min(kMostThreads, bytes / kReadSizes.bytes_per_thread);
    if (worth < 2 || !in_page_cache(fd_, offset, bytes)) return 1;
    return std::min<std::uint64_t>(worth, usable_cores());
  }

  Status read_block(std::uint64_t block, std::span<std::byte> out) {
    const std::uint64_t begin = range_.offset + block * kBlock, end = begin + out.size();
    {
      const std::lock_guard lock(ahead_mutex_);
      ahead_.reached(begin);
    }
    const auto crc = sum_block(
        fd_, path_, begin, end, kReadSizes.stride,
        [&](std::uint64_t at, std::uint64_t bytes) { return out.subspan(at - begin, bytes); });
    if (!crc.ok()) return crc.status();
    if (*crc == range_.crcs[block]) return {};
    return base::data_loss(wrong_sum(path_, begin, end, *crc, range_.crcs[block]));
  }

  int fd_;
  std::string path_;
  const Range& range_;
  std::mutex ahead_mutex_;
  ReadAhead ahead_;
  std::optional<std::uint64_t> held_block_;
  std::vector<std::byte> held_;
};

}  // namespace

base::Result<Checkpoint> Checkpoint::open(const std::string& path) {
  const std::string name = fmt::format("{}/{}", path, kManifestName);
  auto text = read_file(name, kLargestManifest);
  if (!text.ok()) {
    const bool missing = text.code() == Code::kNotFound;
    return missing ? base::data_loss(text.status().message()) : text.status();
  }
  REGROUP_ASSIGN_OR_RETURN(auto manifest, parse_manifest(std::as_bytes(std::span(*text)), name));
  Checkpoint out(path, std::move(manifest));
  for (const File& file : out.manifest_.files) {
    const std::string file_path = path + "/" + file.name;
    auto fd = open_file(file_path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
    if (!fd.ok() && fd.code() == Code::kNotFound) return base::data_loss(fd.status().message());
    if (!fd.ok()) return fd.status();
    REGROUP_ASSIGN_OR_RETURN(const auto size, size_of(fd->get(), file_path));
    if (size != file.bytes) {
      return base::data_loss(fmt::format("{}: {} bytes, expected {}", file_path, size, file.bytes));
    }
    out.files_.push_back(std::move(*fd));
  }
  return out;
}

Checkpoint::Checkpoint(std::string path, Manifest manifest)
    : path_(std::move(path)), manifest_(std::move(manifest)) {
  index_.reserve(manifest_.tensors.size());
  for (const Tensor& tensor : manifest_.tensors) index_.emplace(tensor.name, index_.size());
}

std::optional<std::size_t> Checkpoint::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? std::nullopt : std::optional(found->second);
}

Status Checkpoint::read(std::size_t tensor, const Box& box, std::span<std::byte> out) const {
  const Tensor& of = manifest_.tensors[tensor];
  const std::uint64_t size = *size_of_dtype(of.dtype);
  if (!lies_within(box, of.shape) || out.size() != *volume_of(box.count) * size) {
    return base::invalid_argument(fmt::format(
        "tensor {}: cannot read box {} of {} into a buffer of {} bytes; expected a box inside the "
        "tensor and a buffer of its size",
        base::escaped(of.name), to_string(box), to_string(whole(of.shape)), out.size()));
  }
  if (out.empty()) return {};
  for (const Piece& piece : of.pieces) {
    const auto part = intersection(piece.box, box);
    if (!part) continue;
    const std::vector<Run> runs = runs_of(*part, piece.box, box);
    BlockReader reader(files_[piece.file].get(), path_ + "/" + manifest_.files[piece.file].name,
                       piece.range, (runs.back().from + runs.back().elements) * size);
    for (const Run& run : runs)
      REGROUP_RETURN_IF_ERROR(
          reader.read(run.from * size, out.subspan(run.to * size, run.elements * size)));
  }
  return {};
}

Status Checkpoint::read(std::size_t tensor, std::span<std::byte> out) const {
  return read(tensor, whole(manifest_.tensors[tensor].shape), out);
}

Status Checkpoint::read_parts(std::size_t tensor, const TakePart& take) const {
  const Tensor& of = manifest_.tensors[tensor];
  const std::uint64_t bytes = bytes_of(of);
  std::vector<std::byte> part;
  if (of.pieces.size() != 1) {
    part.resize(bytes);
    REGROUP_RETURN_IF_ERROR(read(tensor, part));
    return take(part);
  }
  const Piece& piece = of.pieces[0];
  BlockReader reader(files_[piece.file].get(), path_ + "/" + manifest_.files[piece.file].name,
                     piece.range, bytes);
  for (std::uint64_t at = 0; at < bytes; at += kBlock) {
    part.resize(std::min(kBlock, bytes - at));
    REGROUP_RETURN_IF_ERROR(reader.read(at, part));
    REGROUP_RETURN_IF_ERROR(take(part));
  }
  return {};
}

base::Result<std::optional<Newest>> newest_good(const std::vector<Place>& places, const Say& say,
                                                const OnProgress& on_progress) {
  struct Candidate {
    Entry entry;
    bool aside = false;
  };
  std::vector<Candidate> candidates;
  for (const Place& place : places) {
    const auto entries = list(place.directory);
    if (entries.code() == Code::kNotFound) continue;
    if (!entries.ok()) return entries.status();
    for (const Entry& entry : *entries) candidates.push_back({entry, place.aside});
  }
  std::ranges::stable_sort(candidates, std::greater(),
                           [](const Candidate& one) { return one.entry.step; });
  for (const Candidate& candidate : candidates) {
    const auto& [entry, aside] = candidate;
    const Status status = verify_chain(entry.path, on_progress);
    if (status.ok()) return std::optional(Newest{entry.step, entry.path});
    // Other errors (another version, no permission, no memory) do not prove that it is damaged.
    if (status.code() != Code::kDataLoss) return status;
    say(fmt::format(
        "checkpoint {} is damaged; {}: {}", entry.path,
        &candidate == &candidates.back() ? "no other one is left" : "using the one before it",
        status.message()));
    if (!aside) continue;
    if (const Status moved = set_aside(entry, status.message()); !moved.ok()) say(moved.message());
  }
  return std::optional<Newest>();
}

base::Result<std::optional<Newest>> newest_good(const std::string& directory, bool aside,
                                                const Say& say, const OnProgress& on_progress) {
  return newest_good({{directory, aside}}, say, on_progress);
}

}  // namespace regroup::checkpoint
