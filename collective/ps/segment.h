// The memory of a store: segments, which are sealed memfds of equal size that the agent makes and
// keeps, mapped one after another, so that an offset names a byte in every process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace regroup::collective::ps {

inline constexpr std::uint64_t kSegmentBytes = 64 << 20;  // as shipped
inline constexpr std::uint64_t kBlockBytes = 64 << 10;    // a segment has a whole number of blocks
inline constexpr std::uint64_t kMaxStoreBytes = 1ULL << 37;

// Makes a segment: memory that is reserved, reads as zeros and cannot shrink. kInvalidArgument:
// `bytes` is not a positive multiple of kBlockBytes. kResourceExhausted: it does not fit in memory;
// the message has the bytes requested, those available and the limit. Blocks to reserve.
[[nodiscard]] base::Result<base::Fd> make_segment(std::uint64_t bytes);

// A mapping of all segments of a store. The descriptors may be closed once they are mapped. One
// thread at a time; at() any thread.
class StoreMemory {
 public:
  enum class Mode { kRead, kWrite };

  // Maps segment 0; room for `most` segments is kept in the address space. kDataLoss: it is no
  // segment (not sealed, or of a wrong size).
  [[nodiscard]] static base::Result<StoreMemory> open(int segment, std::uint32_t most, Mode mode);
  // Maps the next segment, of the same size.
  [[nodiscard]] base::Status add(int segment);

  StoreMemory() = default;
  StoreMemory(StoreMemory&& other) noexcept;
  StoreMemory& operator=(StoreMemory&& other) noexcept;
  StoreMemory(const StoreMemory&) = delete;
  StoreMemory& operator=(const StoreMemory&) = delete;
  ~StoreMemory();

  [[nodiscard]] std::byte* at(std::uint64_t offset) const { return base_ + offset; }
  // True if bytes [offset, offset + size) are mapped here.
  [[nodiscard]] bool has(std::uint64_t offset, std::uint64_t size) const {
    return offset < bytes() && size <= bytes() - offset;
  }
  [[nodiscard]] std::uint64_t bytes() const { return segments_ * segment_bytes_; }
  [[nodiscard]] std::uint64_t segment_bytes() const { return segment_bytes_; }
  [[nodiscard]] std::uint32_t segments() const { return segments_; }
  [[nodiscard]] std::uint32_t most_segments() const { return most_; }

 private:
  std::byte* base_ = nullptr;
  std::uint64_t segment_bytes_ = 0;
  std::uint32_t segments_ = 0;
  std::uint32_t most_ = 0;
  Mode mode_ = Mode::kRead;
};

}  // namespace regroup::collective::ps
