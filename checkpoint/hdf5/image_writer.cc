// Writes long aligned runs of memory in place, and computes their checksums while the device reads
// them; if the caller changes them meanwhile, against the contract, the checksum does not match.
// Copies the rest into the queue's buffers, in strides that stay in the cache between the copy and
// the checksum.
#include "checkpoint/hdf5/image_writer.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/crc32c.h"
#include "checkpoint/hdf5/write_queue.h"

namespace regroup::checkpoint::hdf5 {
namespace {

using base::Status;

constexpr std::size_t kStride = 64 << 10;
// Shorter runs are copied, since that is faster than a write of their own.
constexpr std::size_t kWorthARun = 64 << 10;

// Computes the checksums of one extent incrementally. A call must not cross the end of a block.
void add_to_crcs(Range* range, std::uint64_t done, std::span<const std::byte> bytes) {
  if (done % kBlock == 0) range->crcs.push_back(0);
  range->crcs.back() = base::crc32c(bytes, range->crcs.back());
}

class Image {
 public:
  explicit Image(std::span<const Extent> extents) : extents_(extents) {
    std::uint64_t offset = 0;
    for (const Extent& extent : extents) {
      *extent.range = {offset, extent.bytes.size(), {}};
      offset += extent.bytes.size();
    }
  }

  // The next bytes of the file if they can be written from the caller's memory; else empty. The
  // position in the file must be a multiple of the alignment.
  [[nodiscard]] std::span<const std::byte> run() {
    while (index_ < extents_.size() && done_ == extents_[index_].bytes.size()) next_extent();
    if (index_ == extents_.size()) return {};
    const std::span<const std::byte> rest = extents_[index_].bytes.subspan(done_);
    const bool aligned =
        reinterpret_cast<std::uintptr_t>(rest.data()) % WriteQueue::kAlignment == 0;
    if (!aligned || rest.size() < kWorthARun) return {};
    const std::size_t bytes = std::min(rest.size(), WriteQueue::kBufferBytes);
    return rest.first(bytes - bytes % WriteQueue::kAlignment);
  }
  // Adds a complete run to the checksums.
  void pass(std::span<const std::byte> run) {
    while (!run.empty()) {
      const std::size_t bytes = std::min<std::uint64_t>(run.size(), kBlock - done_ % kBlock);
      add_to_crcs(extents_[index_].range, done_, run.first(bytes));
      done_ += bytes;
      run = run.subspan(bytes);
    }
  }

  // Fills `out` with the next bytes of the file; with fewer at the end or where a run begins.
  std::size_t fill(std::span<std::byte> out) {
    std::size_t filled = 0;
    while (filled < out.size() && index_ < extents_.size()) {
      const Extent& extent = extents_[index_];
      if (done_ == extent.bytes.size()) {
        next_extent();
        continue;
      }
      const bool at_page = filled > 0 && filled % WriteQueue::kAlignment == 0;
      if (at_page && done_ == 0 && !run().empty()) break;
      filled += take(extent, out.subspan(filled));
    }
    return filled;
  }

 private:
  void next_extent() {
    ++index_;
    done_ = 0;
  }
  std::size_t take(const Extent& extent, std::span<std::byte> out) {
    const std::size_t bytes = std::min({kStride, out.size(), extent.bytes.size() - done_,
                                        static_cast<std::size_t>(kBlock - done_ % kBlock)});
    std::memcpy(out.data(), extent.bytes.data() + done_, bytes);
    add_to_crcs(extent.range, done_, out.first(bytes));
    done_ += bytes;
    return bytes;
  }

  std::span<const Extent> extents_;
  std::size_t index_ = 0;
  std::size_t done_ = 0;  // number of bytes of that extent
};

}  // namespace

Status write_image(const std::string& path, std::span<const Extent> extents,
                   std::uint64_t file_bytes, const WriteOptions& options) {
  REGROUP_ASSIGN_OR_RETURN(auto queue, WriteQueue::open(path, options));
  Image image(extents);
  for (std::uint64_t offset = 0; offset < file_bytes;) {
    if (options.moved) options.moved();
    if (const auto run = image.run(); !run.empty()) {
      REGROUP_RETURN_IF_ERROR(queue->write_from(offset, run));
      image.pass(run);
      offset += run.size();
      continue;
    }
    REGROUP_ASSIGN_OR_RETURN(auto buffer, queue->buffer());
    const std::size_t bytes = image.fill(buffer);
    assert(bytes > 0);
    REGROUP_RETURN_IF_ERROR(queue->write(offset, bytes));
    offset += bytes;
  }
  return queue->finish(file_bytes);
}

}  // namespace regroup::checkpoint::hdf5
