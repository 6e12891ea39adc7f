// The values of a dense range: two buffers, of which a word names the current one. A push writes
// the other one whole, then publishes the word.
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "base/status.h"
#include "collective/ps/blocks.h"
#include "collective/ps/store_layout.h"

namespace regroup::collective::ps {

struct SliceHeader {
  std::uint64_t lsn;
  std::uint64_t updates;
  std::uint64_t reserved[6];
};
static_assert(sizeof(SliceHeader) == kLineBytes);

// Offsets in a buffer of `elements` elements.
struct SliceShape {
  SliceShape(const TableSpec& spec, std::uint64_t elements)
      : value_bytes(elements * size_of(spec.dtype)),
        state_at(sizeof(SliceHeader) + (value_bytes + kLineBytes - 1) / kLineBytes * kLineBytes),
        state_bytes(elements * spec.state_bytes()),
        bytes(pages_of(state_at + state_bytes)) {}
  std::uint64_t value_bytes, state_at, state_bytes, bytes;
};

template <class P>
class BasicSlices {
 public:
  BasicSlices(BasicBlocks<P>& blocks, RangeHeader& header, SliceShape shape)
      : blocks_(&blocks), header_(&header), shape_(shape) {}

  [[nodiscard]] const SliceHeader* current() const {
    const std::uint64_t word = header_->current.load(std::memory_order_acquire);
    return word == 0 ? nullptr : buffer(word & 1);
  }
  // Has the two buffers when it returns success.
  [[nodiscard]] base::Status reserve() {
    if (header_->slices.load(std::memory_order_relaxed) != 0) return {};
    const std::uint64_t count = (2 * shape_.bytes + kBlockBytes - 1) / kBlockBytes;
    REGROUP_ASSIGN_OR_RETURN(const std::uint64_t block, blocks_->find(count));
    blocks_->own(block, count, BlockUse::kDense, header_->id);
    P::publish(header_->slices, block * kBlockBytes);
    return {};
  }
  // The buffer to write, which no reader finds; reserve() has succeeded.
  [[nodiscard]] SliceHeader* other() const {
    base::store_fence();  // readers can see the current word before they can see changes here
    return buffer((header_->current.load(std::memory_order_relaxed) & 1) ^ 1);
  }
  void publish(const SliceHeader* written) {
    P::publish(header_->current, written->lsn << 1 | (written == buffer(1) ? 1 : 0));
  }
  // Gives back blocks that a crash has left: owned, and not yet named by the header.
  void rebuild() {
    if (header_->slices.load(std::memory_order_relaxed) != 0) return;
    blocks_->each(BlockUse::kDense, header_->id,
                  [this](std::uint64_t block) { blocks_->give_back(block); });
  }

 private:
  [[nodiscard]] SliceHeader* buffer(std::uint64_t number) const {
    return reinterpret_cast<SliceHeader*>(blocks_->memory().at(
        header_->slices.load(std::memory_order_relaxed) + number * shape_.bytes));
  }

  BasicBlocks<P>* blocks_;
  RangeHeader* header_;
  SliceShape shape_;
};

}  // namespace regroup::collective::ps
