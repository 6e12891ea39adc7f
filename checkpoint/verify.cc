// Verifies by reading into a buffer that stays in the cache, unless the caller has a faster way.
// With read(), a failing disk is an error and not a signal.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "checkpoint/block_sum.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/file_io.h"
#include "checkpoint/parallel.h"

namespace regroup::checkpoint {
namespace {

using base::Status;

constexpr std::size_t kMostFindings = 100;
constexpr std::size_t kHugePage = 2 << 20;

// A buffer on a huge page, if the system has one: scattered small pages of a stride would compete
// for the same cache sets.
class Buffer {
 public:
  Buffer() : memory_(static_cast<std::byte*>(std::aligned_alloc(kHugePage, kHugePage))) {
    if (!memory_) throw std::bad_alloc();
    (void)::madvise(memory_.get(), kHugePage, MADV_HUGEPAGE);
  }
  [[nodiscard]] std::span<std::byte> stride() const { return {memory_.get(), kVerifySizes.stride}; }

 private:
  struct Free {
    void operator()(std::byte* at) const { std::free(at); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

// Several threads take the blocks in order, each with a buffer of its own.
class Verifier {
 public:
  Verifier(const std::string& path, const Manifest& manifest, const OnProgress& on_progress,
           const QuickSum& quick_sum)
      : on_progress_(on_progress), quick_sum_(quick_sum), files_(manifest.files.size()) {
    for (std::size_t i = 0; i < manifest.files.size(); ++i) {
      const File& file = manifest.files[i];
      progress_.total += file.bytes;
      files_[i].path = path + "/" + file.name;
      files_[i].bytes = file.bytes;
      for (const Range& range : file.rest) add(i, range);
    }
    for (const Tensor& tensor : manifest.tensors) {
      for (const Piece& piece : tensor.pieces) add(piece.file, piece.range);
    }
    std::ranges::sort(blocks_, {},
                      [](const Block& block) { return std::pair(block.file, block.begin); });
  }

  Status run(unsigned threads) {
    for (Read& file : files_) {
      REGROUP_ASSIGN_OR_RETURN(file.fd, open_file(file.path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW));
      file.ahead.emplace(file.fd.get(), file.bytes);
    }
    const auto most = std::max<std::uint64_t>(1, progress_.total / kVerifySizes.bytes_per_thread);
    run_parallel(std::min<std::uint64_t>(threads, most), [this] { work(); });
    std::ranges::sort(findings_);
    return findings_.empty() ? Status() : base::data_loss(joined());
  }

 private:
  struct Read {
    std::string path;
    std::uint64_t bytes = 0;
    base::Fd fd;
    std::optional<ReadAhead> ahead;  // under mutex_
  };
  struct Block {
    std::size_t file = 0;
    std::uint64_t begin = 0, size = 0;
    std::uint32_t crc = 0;
  };

  void add(std::size_t file, const Range& range) {
    for (std::uint64_t block = 0; block < range.crcs.size(); ++block)
      blocks_.push_back({file, range.offset + block * kBlock,
                         std::min(kBlock, range.bytes - block * kBlock), range.crcs[block]});
  }

  void work() {
    const Buffer buffer;
    for (;;) {
      const std::size_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= blocks_.size()) return;
      const Block& block = blocks_[index];
      {
        const std::lock_guard lock(mutex_);
        files_[block.file].ahead->reached(block.begin);
      }
      const std::string wrong = look(block, buffer.stride());
      const std::lock_guard lock(mutex_);
      if (!wrong.empty() && findings_.size() < kMostFindings) findings_.emplace_back(index, wrong);
      progress_.done += block.size;
      if (on_progress_) on_progress_(progress_);
    }
  }

  // Why the block is bad; empty if it is good.
  [[nodiscard]] std::string look(const Block& block, std::span<std::byte> buffer) const {
    const Read& file = files_[block.file];
    if (quick_sum_ && quick_sum_(file.fd.get(), block.begin, block.size) == block.crc) return {};
    const std::uint64_t end = block.begin + block.size;
    const auto crc =
        sum_block(file.fd.get(), file.path, block.begin, end, kVerifySizes.stride,
                  [&](std::uint64_t, std::uint64_t bytes) { return buffer.first(bytes); });
    if (!crc.ok())
      return fmt::format("bytes {} to {} cannot be read: {}", block.begin, end,
                         crc.status().message());
    return *crc == block.crc ? "" : wrong_sum(file.path, block.begin, end, *crc, block.crc);
  }

  [[nodiscard]] std::string joined() const {
    std::string out;
    for (const auto& [index, finding] : findings_) out += (out.empty() ? "" : "\n") + finding;
    return out;
  }

  const OnProgress& on_progress_;
  const QuickSum& quick_sum_;
  std::vector<Read> files_;
  std::vector<Block> blocks_;  // in the order of the files
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;
  Progress progress_;  // under mutex_
  // Guarded by mutex_; with the block's index.
  std::vector<std::pair<std::size_t, std::string>> findings_;
};

}  // namespace

base::Status verify(const std::string& path, const OnProgress& on_progress, unsigned threads,
                    const QuickSum& quick_sum) {
  REGROUP_ASSIGN_OR_RETURN(auto checkpoint, Checkpoint::open(path));
  return Verifier(path, checkpoint.manifest(), on_progress, quick_sum).run(threads);
}

}  // namespace regroup::checkpoint
