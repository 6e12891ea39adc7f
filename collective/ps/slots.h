// The slots of a range's rows. A slot is free when no word of the index leads to it; the list of
// free slots is in the writer's own memory; a successor takes new blocks until it has rebuilt it.
// The slot that was freed last is reused first, since its lines are still in the writer's cache; a
// reader that copies it meanwhile notices that (reader.h) and copies again.
#pragma once

#include <bitset>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/cpu.h"
#include "base/status.h"
#include "collective/ps/blocks.h"
#include "collective/ps/index.h"
#include "collective/ps/store_layout.h"

namespace regroup::collective::ps {

template <class P>
class BasicSlots {
 public:
  BasicSlots(BasicBlocks<P>& blocks, RowShape shape, std::uint32_t range)
      : blocks_(&blocks), shape_(shape), range_(range) {}

  // Makes sure that the next `count` calls of take() succeed.
  [[nodiscard]] base::Status reserve(std::uint64_t count) {
    while (free_.size() < count) {
      REGROUP_ASSIGN_OR_RETURN(const std::uint64_t block, blocks_->find());
      blocks_->own(block, 1, BlockUse::kRows, range_);
      each_slot(block, [this](std::uint32_t slot) { free_.push_back(slot); });
    }
    return {};
  }
  // A free slot, marked with `lsn`, for the caller to fill. A reader that still copies the row that
  // was there finds another LSN, or another index word, before it can find other bytes.
  [[nodiscard]] base::Result<std::uint32_t> take(std::uint64_t lsn) {
    REGROUP_RETURN_IF_ERROR(reserve(1));
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    P::point();
    row_at(blocks_->memory(), slot)->lsn.store(lsn, std::memory_order_release);
    base::store_fence();
    return slot;
  }
  // Call once no word leads to the slot.
  void give_back(std::uint32_t slot) { free_.push_back(slot); }

  // Slots that hold rows, by block: 256 bytes for each block.
  class Live {
   public:
    void insert(std::uint32_t slot) {
      blocks_[slot / kSlotsOfBlock].set(slot % kSlotsOfBlock);
      ++size_;
    }
    [[nodiscard]] bool has(std::uint32_t slot) const {
      const auto found = blocks_.find(slot / kSlotsOfBlock);
      return found != blocks_.end() && found->second[slot % kSlotsOfBlock];
    }
    [[nodiscard]] std::uint64_t size() const { return size_; }

   private:
    static constexpr std::uint32_t kSlotsOfBlock = kBlockBytes / kSlotUnit;
    std::unordered_map<std::uint32_t, std::bitset<kSlotsOfBlock>> blocks_;
    std::uint64_t size_ = 0;
  };
  // Forgets the free slots; all but `live` ones are free. No slot that take() gave waits for its
  // word in the index.
  void rebuild(const Live& live) {
    free_.clear();
    blocks_->each(BlockUse::kRows, range_, [&](std::uint64_t block) {
      each_slot(block, [&](std::uint32_t slot) {
        if (!live.has(slot)) free_.push_back(slot);
      });
    });
  }
  [[nodiscard]] std::size_t free_slots() const { return free_.size(); }

 private:
  template <class Visit>
  void each_slot(std::uint64_t block, Visit visit) const {
    for (std::uint64_t at = 0; at + shape_.bytes <= kBlockBytes; at += shape_.bytes)
      visit(static_cast<std::uint32_t>((block * kBlockBytes + at) / kSlotUnit));
  }

  BasicBlocks<P>* blocks_;
  RowShape shape_;
  std::uint32_t range_;
  std::vector<std::uint32_t> free_;
};

}  // namespace regroup::collective::ps
