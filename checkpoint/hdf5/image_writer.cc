// Copies what is to be written into the queue's buffers, in strides that stay in the cache between the copy
// and the checksum: what is summed is what is written.
#include "checkpoint/hdf5/image_writer.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "checkpoint/hdf5/write_queue.h"
#include "core/crc32c.h"

namespace regroup::checkpoint::hdf5 {
namespace {

using core::Status;

constexpr std::size_t kStride = 64 << 10;

// Checksums of one extent as its bytes go by.
void add_to_crcs(Range* range, std::uint64_t done, std::span<const std::byte> bytes) {
  if (done % kBlock == 0) range->crcs.push_back(0);
  range->crcs.back() = core::crc32c(bytes, range->crcs.back());
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

  // Fills `out` with the next bytes of the file; fewer only at its end.
  std::size_t fill(std::span<std::byte> out) {
    std::size_t filled = 0;
    while (filled < out.size() && index_ < extents_.size()) {
      const Extent& extent = extents_[index_];
      if (done_ == extent.bytes.size()) {
        ++index_;
        done_ = 0;
        continue;
      }
      filled += take(extent, out.subspan(filled));
    }
    return filled;
  }

 private:
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
  std::size_t done_ = 0;  // of that extent
};

}  // namespace

Status write_image(const std::string& path, std::span<const Extent> extents, std::uint64_t file_bytes,
                   const WriteOptions& options) {
  auto queue = WriteQueue::open(path, options);
  if (!queue.ok()) return queue.status();
  Image image(extents);
  for (std::uint64_t offset = 0; offset < file_bytes;) {
    auto buffer = (*queue)->buffer();
    if (!buffer.ok()) return buffer.status();
    const std::size_t bytes = image.fill(*buffer);
    assert(bytes > 0);
    REGROUP_RETURN_IF_ERROR((*queue)->write(offset, bytes));
    offset += bytes;
  }
  return (*queue)->finish(file_bytes);
}

}  // namespace regroup::checkpoint::hdf5
