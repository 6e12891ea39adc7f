// The blocks of a store and their owner words. A word is written once the block's content may be
// found through it, so a crash leaves a block either free or of its use; what no other word leads
// to is given back when a successor attaches.
#pragma once

#include <fmt/format.h>

#include <cstdint>

#include "base/status.h"
#include "collective/ps/store_layout.h"

namespace regroup::collective::ps {

enum class BlockUse : std::uint8_t { kFree, kRange, kIndex, kDirectory, kRows, kDense, kTable };

template <class P>
class BasicBlocks {
 public:
  explicit BasicBlocks(const StoreMemory& memory)
      : memory_(&memory),
        head_(*reinterpret_cast<const StoreHeader*>(memory.at(0))),
        first_(head_.end / kBlockBytes),
        next_(first_) {}

  // Finds `count` free blocks in a row; returns the first one's number. They are free until own().
  [[nodiscard]] base::Result<std::uint64_t> find(std::uint64_t count = 1) {
    for (std::uint64_t at = next_, run = 0; at < end(); ++at) {
      run = use_of(at) == BlockUse::kFree ? run + 1 : 0;
      if (run == count) {
        if (count == 1) next_ = at;
        return at + 1 - count;
      }
    }
    return base::resource_exhausted(
        fmt::format("store: {} bytes requested, none free in {} segments of {} bytes; add a "
                    "segment (--ps-memory is the limit)",
                    count * kBlockBytes, memory_->segments(), memory_->segment_bytes()));
  }
  void own(std::uint64_t block, std::uint64_t count, BlockUse use, std::uint32_t range) {
    // A successor must map the segment.
    Word& segments = header_of(*memory_).segments;
    const std::uint64_t least = ((block + count) * kBlockBytes - 1) / memory_->segment_bytes() + 1;
    if (segments.load(std::memory_order_relaxed) < least) P::publish(segments, least);
    for (std::uint64_t i = block; i < block + count; ++i)
      P::publish(owner(i), static_cast<std::uint64_t>(range) << 8 | static_cast<std::uint8_t>(use));
  }
  void give_back(std::uint64_t block) {
    P::publish(owner(block), 0);
    next_ = std::min(next_, block);
  }
  // Calls visit(block) for each block of this use and range.
  template <class Visit>
  void each(BlockUse use, std::uint32_t range, Visit visit) const {
    for (std::uint64_t at = first_; at < end(); ++at) {
      if (use_of(at) == use && range_of(at) == range) visit(at);
    }
  }
  // Calls visit(block) for each block of use kRange.
  template <class Visit>
  void each_range(Visit visit) const {
    each_of(BlockUse::kRange, visit);
  }
  // Calls visit(block) for each block of this use.
  template <class Visit>
  void each_of(BlockUse use, Visit visit) const {
    for (std::uint64_t at = first_; at < end(); ++at) {
      if (use_of(at) == use) visit(at);
    }
  }
  [[nodiscard]] std::uint64_t blocks() const { return end() - first_; }
  [[nodiscard]] std::uint64_t free_blocks() const {
    std::uint64_t count = 0;
    for (std::uint64_t at = first_; at < end(); ++at) count += use_of(at) == BlockUse::kFree;
    return count;
  }
  [[nodiscard]] const StoreMemory& memory() const { return *memory_; }

 private:
  [[nodiscard]] std::uint64_t end() const { return memory_->bytes() / kBlockBytes; }
  [[nodiscard]] Word& owner(std::uint64_t block) const {
    return reinterpret_cast<Word*>(memory_->at(head_.owners))[block];
  }
  [[nodiscard]] BlockUse use_of(std::uint64_t block) const {
    return static_cast<BlockUse>(owner(block).load(std::memory_order_acquire) & 0xff);
  }
  [[nodiscard]] std::uint32_t range_of(std::uint64_t block) const {
    return static_cast<std::uint32_t>(owner(block).load(std::memory_order_acquire) >> 8);
  }

  const StoreMemory* memory_;
  HeadLayout head_;
  std::uint64_t first_;  // the blocks before are the head
  std::uint64_t next_;   // none before is free
};

}  // namespace regroup::collective::ps
