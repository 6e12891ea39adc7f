// The index of a range: position -> slot of its row. Extendible hashing: a directory of pages, each
// with 512 words that are probed linearly. A word is {slot, 16 bits of the position's hash, low 16
// bits of the row's LSN}. Pages and directories are never changed in their shape: a split writes
// two new pages and a new directory, then publishes the root word. So a crash at any moment leaves
// the old index or the new one, and a reader that finds the root word unchanged has read a whole
// one.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/cpu.h"
#include "base/status.h"
#include "collective/ps/blocks.h"
#include "collective/ps/store_layout.h"

namespace regroup::collective::ps {

inline constexpr std::uint32_t kPageWords = kPageBytes / sizeof(Word);
inline constexpr std::uint32_t kMaxDepth = 14;      // a directory of one block
inline constexpr std::uint32_t kMaxPageDepth = 10;  // a directory of one page
inline constexpr std::uint32_t kSmallDepth = 4;
inline constexpr std::uint32_t kFullPage = 448;  // words used, of kPageWords

[[nodiscard]] constexpr std::uint64_t index_hash(std::uint64_t position) {
  return mix64(position ^ 0x9e3779b97f4a7c15ULL);
}

// Words of the index. 0: never used.
[[nodiscard]] constexpr std::uint64_t index_word(std::uint32_t slot, std::uint64_t hash,
                                                 std::uint64_t lsn) {
  return static_cast<std::uint64_t>(slot) << 32 | (hash & 0xffff) << 16 | (lsn & 0xffff);
}
[[nodiscard]] constexpr std::uint32_t slot_of(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32);
}

struct IndexRoot {
  std::uint32_t page;  // of the directory; 0: the index is empty
  std::uint32_t depth;
  std::uint32_t version;
  [[nodiscard]] static constexpr IndexRoot of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word >> 24 & 0xff),
            static_cast<std::uint32_t>(word & 0xffffff)};
  }
  [[nodiscard]] constexpr std::uint64_t word() const {
    return static_cast<std::uint64_t>(page) << 32 | depth << 24 | (version & 0xffffff);
  }
};

[[nodiscard]] inline RowHeader* row_at(const StoreMemory& memory, std::uint32_t slot) {
  return reinterpret_cast<RowHeader*>(memory.at(slot * kSlotUnit));
}

// Where a position is, or would be.
struct IndexPlace {
  Word* word = nullptr;     // of the position; null: it is not there
  std::uint64_t value = 0;  // of the word
  Word* free = nullptr;     // the first word that is not used
  bool sane = true;         // false: a word leads outside the mapping, as a page that is reused may
};
// Where the probe for a hash begins; null: the root is empty, or leads outside the mapping.
[[nodiscard]] inline Word* first_word(const StoreMemory& memory, IndexRoot root,
                                      std::uint64_t hash) {
  if (root.page == 0 || root.depth > kMaxDepth) return nullptr;
  const std::uint64_t entry = root.depth == 0 ? 0 : hash >> (64 - root.depth);
  const std::uint64_t at = root.page * kPageBytes + entry * sizeof(std::uint32_t);
  if (!memory.has(at, sizeof(std::uint32_t))) return nullptr;
  const std::uint64_t page = *reinterpret_cast<const std::uint32_t*>(memory.at(at)) * kPageBytes;
  if (!memory.has(page, kPageBytes)) return nullptr;
  return reinterpret_cast<Word*>(memory.at(page)) + (hash >> 16) % kPageWords;
}
[[nodiscard]] inline IndexPlace find_in_index(const StoreMemory& memory, IndexRoot root,
                                              std::uint64_t position) {
  IndexPlace place;
  if (root.page == 0) return place;
  const std::uint64_t hash = index_hash(position);
  Word* const first = first_word(memory, root, hash);
  place.sane = false;
  if (first == nullptr) return place;
  Word* const words = first - (hash >> 16) % kPageWords;
  for (std::uint32_t i = 0; i < kPageWords; ++i) {
    Word& word = words[((hash >> 16) + i) % kPageWords];
    const std::uint64_t value = word.load(std::memory_order_acquire);
    if (value == 0) {
      place.free = &word;
      place.sane = true;
      return place;
    }
    if ((value >> 16 & 0xffff) != (hash & 0xffff)) continue;
    if (!memory.has(slot_of(value) * kSlotUnit, sizeof(RowHeader))) return place;
    if (row_at(memory, slot_of(value))->position != position) {
      // Another position's, unless the writer has moved this one and reused the slot since.
      std::atomic_thread_fence(std::memory_order_acquire);
      if (word.load(std::memory_order_relaxed) != value) return place;
      continue;
    }
    place.word = &word;
    place.value = value;
    place.sane = true;
    return place;
  }
  return place;
}

// Calls visit(word) for the word of each row, in an order of the index's own. No writer changes it
// meanwhile.
template <class Visit>
void each_word_in_index(const StoreMemory& memory, IndexRoot root, Visit visit) {
  if (root.page == 0) return;
  const auto* const entries =
      reinterpret_cast<const std::uint32_t*>(memory.at(root.page * kPageBytes));
  for (std::size_t i = 0; i < std::size_t{1} << root.depth; ++i) {
    if (i > 0 && entries[i] == entries[i - 1]) continue;  // the entries of a page are neighbours
    const auto* const words = reinterpret_cast<const Word*>(memory.at(entries[i] * kPageBytes));
    for (std::uint32_t at = 0; at < kPageWords; ++at) {
      const std::uint64_t value = words[at].load(std::memory_order_relaxed);
      if (value != 0) visit(value);
    }
  }
}
// The same with the row's slot.
template <class Visit>
void each_in_index(const StoreMemory& memory, IndexRoot root, Visit visit) {
  each_word_in_index(memory, root, [&](std::uint64_t word) { visit(slot_of(word)); });
}

// For lookups of many positions: brings the word where find_in_index() begins into the cache; then,
// in a second pass, the first `bytes` of the row that it probably leads to. Changes nothing.
inline void prefetch_index(const StoreMemory& memory, IndexRoot root, std::uint64_t position) {
  if (Word* const word = first_word(memory, root, index_hash(position)); word != nullptr)
    __builtin_prefetch(word);
}
inline void prefetch_row(const StoreMemory& memory, IndexRoot root, std::uint64_t position,
                         std::size_t bytes) {
  const std::uint64_t hash = index_hash(position);
  const Word* const word = first_word(memory, root, hash);
  if (word == nullptr) return;
  const auto* const end = word + (kPageWords - (hash >> 16) % kPageWords);
  for (const Word* at = word; at < end; ++at) {
    const std::uint64_t value = at->load(std::memory_order_relaxed);
    if (value == 0) return;
    const std::uint64_t offset = slot_of(value) * kSlotUnit;
    if ((value >> 16 & 0xffff) != (hash & 0xffff) || !memory.has(offset, bytes)) continue;
    for (std::size_t line = 0; line < bytes; line += kLineBytes)
      __builtin_prefetch(memory.at(offset + line));
    return;
  }
}

// The writer's side. How full a page is, is counted when the page is needed; what pages a successor
// may use again is known after rebuild(), before that it takes new ones.
template <class P>
class BasicIndex {
 public:
  BasicIndex(BasicBlocks<P>& blocks, Word& root, std::uint32_t range)
      : blocks_(&blocks), root_(&root), range_(range) {}

  [[nodiscard]] IndexPlace find(std::uint64_t position) const {
    return find_in_index(memory(), root(), position);
  }
  void prefetch_word(std::uint64_t position) const { prefetch_index(memory(), root(), position); }
  void prefetch_row(std::uint64_t position, std::size_t bytes) const {
    ps::prefetch_row(memory(), root(), position, bytes);
  }
  // Makes room for the insert() of a position that is not there: splits its page if that would be
  // full with all that is promised. kResourceExhausted: no page is free, or the range has as many
  // rows as one can have; nothing is promised.
  [[nodiscard]] base::Status promise(std::uint64_t position) {
    const std::uint64_t hash = index_hash(position);
    if (root().page == 0) REGROUP_RETURN_IF_ERROR(begin());
    while (is_full(hash)) REGROUP_RETURN_IF_ERROR(split(hash));
    promised_.push_back(hash);
    ++state_of(page_of(hash)).promised;
    return {};
  }
  // Promises that were made and not dropped, in the order in which they were made.
  [[nodiscard]] std::size_t promised() const { return promised_.size(); }
  void drop_oldest(std::size_t count) {
    for (; count > 0; --count) {
      --state_of(page_of(promised_.front())).promised;
      promised_.pop_front();
    }
  }
  void drop_newest(std::size_t count) {
    for (; count > 0; --count) {
      --state_of(page_of(promised_.back())).promised;
      promised_.pop_back();
    }
  }
  // Inserts a position that is not there, and that was promised here or before a takeover.
  void insert(std::uint64_t position, std::uint32_t slot, std::uint64_t lsn) {
    const std::uint64_t hash = index_hash(position);
    P::publish(*find(position).free, index_word(slot, hash, lsn));
    ++state_of(page_of(hash)).used;
  }
  // Lets a word that find() gave lead to another slot.
  void update(const IndexPlace& place, std::uint64_t position, std::uint32_t slot,
              std::uint64_t lsn) {
    P::publish(*place.word, index_word(slot, index_hash(position), lsn));
  }

  // rebuild() of it takes less than a millisecond.
  [[nodiscard]] bool is_small() const { return root().depth <= kSmallDepth; }
  // Forgets and reads again: what pages are free, how full the others are. Calls live(slot) for
  // each row.
  template <class Live>
  void rebuild(Live live) {
    pages_.clear();
    free_pages_.clear();
    std::unordered_set<std::uint32_t> taken;
    const IndexRoot now = root();
    if (now.page != 0) {
      taken.insert(now.page);
      for (const std::uint32_t page : directory(now)) {
        if (!taken.insert(page).second) continue;
        std::uint32_t& used = pages_[page].used;
        for (const Word& word : words(page)) {
          const std::uint64_t value = word.load(std::memory_order_relaxed);
          if (value == 0) continue;
          ++used;
          live(slot_of(value));
        }
      }
    }
    for (const std::uint64_t hash : promised_) ++pages_[page_of(hash)].promised;
    blocks_->each(BlockUse::kIndex, range_, [&](std::uint64_t block) {
      for (std::uint32_t i = 0; i < kPagesOfBlock; ++i) {
        const auto page = static_cast<std::uint32_t>(block * kPagesOfBlock + i);
        if (!taken.contains(page)) free_pages_.push_back(page);
      }
    });
    std::vector<std::uint64_t> stale;
    blocks_->each(BlockUse::kDirectory, range_, [&](std::uint64_t block) {
      if (block * kPagesOfBlock != now.page) stale.push_back(block);
    });
    for (const std::uint64_t block : stale) blocks_->give_back(block);
  }

 private:
  static constexpr std::uint64_t kPagesOfBlock = kBlockBytes / kPageBytes;
  using Page = std::array<std::uint64_t, kPageWords>;
  struct PageState {
    std::uint32_t used = 0;      // words
    std::uint32_t promised = 0;  // of promised_
  };

  [[nodiscard]] const StoreMemory& memory() const { return blocks_->memory(); }
  [[nodiscard]] IndexRoot root() const {
    return IndexRoot::of(root_->load(std::memory_order_acquire));
  }
  [[nodiscard]] std::span<const std::uint32_t> directory(IndexRoot root) const {
    return {reinterpret_cast<const std::uint32_t*>(memory().at(root.page * kPageBytes)),
            std::size_t{1} << root.depth};
  }
  [[nodiscard]] std::span<Word> words(std::uint32_t page) const {
    return {reinterpret_cast<Word*>(memory().at(page * kPageBytes)), kPageWords};
  }
  [[nodiscard]] std::uint32_t page_of(std::uint64_t hash) const {
    const IndexRoot now = root();
    return directory(now)[now.depth == 0 ? 0 : hash >> (64 - now.depth)];
  }

  [[nodiscard]] PageState& state_of(std::uint32_t page) {
    const auto [found, is_new] = pages_.try_emplace(page);
    if (is_new) {
      found->second.used = static_cast<std::uint32_t>(std::ranges::count_if(
          words(page), [](const Word& word) { return word.load(std::memory_order_relaxed) != 0; }));
    }
    return found->second;
  }
  [[nodiscard]] bool is_full(std::uint64_t hash) {
    const PageState& state = state_of(page_of(hash));
    return state.used + state.promised >= kFullPage;
  }

  [[nodiscard]] base::Result<std::uint32_t> take_page() {
    if (free_pages_.empty()) {
      REGROUP_ASSIGN_OR_RETURN(const std::uint64_t block, blocks_->find());
      blocks_->own(block, 1, BlockUse::kIndex, range_);
      for (std::uint64_t i = kPagesOfBlock; i-- > 0;)
        free_pages_.push_back(static_cast<std::uint32_t>(block * kPagesOfBlock + i));
    }
    const std::uint32_t page = free_pages_.back();
    free_pages_.pop_back();
    return page;
  }
  [[nodiscard]] base::Result<std::uint32_t> take_directory(std::uint32_t depth) {
    if (depth <= kMaxPageDepth) return take_page();
    REGROUP_ASSIGN_OR_RETURN(const std::uint64_t block, blocks_->find());
    blocks_->own(block, 1, BlockUse::kDirectory, range_);
    return static_cast<std::uint32_t>(block * kPagesOfBlock);
  }
  void give_directory(IndexRoot root) {
    if (root.depth <= kMaxPageDepth) {
      free_pages_.push_back(root.page);
    } else {
      blocks_->give_back(root.page / kPagesOfBlock);
    }
  }

  // The first page, and a directory of depth 0.
  [[nodiscard]] base::Status begin() {
    REGROUP_ASSIGN_OR_RETURN(const std::uint32_t page, take_page());
    REGROUP_ASSIGN_OR_RETURN(const std::uint32_t directory, take_page());
    P::clear(memory().at(page * kPageBytes), kPageBytes);
    P::write(memory().at(directory * kPageBytes), &page, sizeof page);
    P::publish(*root_, IndexRoot{directory, 0, root().version + 1}.word());
    pages_[page] = {};
    return {};
  }

  // Replaces the page of `hash` by two, by the next bit of the hash of their positions.
  [[nodiscard]] base::Status split(std::uint64_t hash) {
    const IndexRoot old = root();
    const std::uint32_t page = page_of(hash);
    const std::span<const std::uint32_t> entries = directory(old);
    // The entries of a page are neighbours.
    std::size_t begin = old.depth == 0 ? 0 : hash >> (64 - old.depth), end = begin + 1;
    while (begin > 0 && entries[begin - 1] == page) --begin;
    while (end < entries.size() && entries[end] == page) ++end;
    IndexRoot next{0, end - begin == 1 ? old.depth + 1 : old.depth, old.version + 1};
    if (next.depth > kMaxDepth) {
      return base::resource_exhausted(
          fmt::format("store: the index of range {} is full; the table needs more ranges", range_));
    }
    std::array<std::uint32_t, 2> halves{};
    REGROUP_RETURN_IF_ERROR(take_for_split(next, halves));

    const std::uint32_t grown = next.depth - old.depth;  // 0 or 1
    const std::size_t middle = ((begin << grown) + (end << grown)) / 2;
    std::array<Page, 2> pages{};
    std::array<PageState, 2> states{};
    for (const Word& word : words(page)) {
      const std::uint64_t value = word.load(std::memory_order_relaxed);
      if (value == 0) continue;
      const std::uint64_t its = index_hash(row_at(memory(), slot_of(value))->position);
      const std::size_t half = its >> (64 - next.depth) >= middle ? 1 : 0;
      std::uint64_t at = (its >> 16) % kPageWords;
      while (pages[half][at] != 0) at = (at + 1) % kPageWords;
      pages[half][at] = value;
      ++states[half].used;
    }
    if (state_of(page).promised > 0) {
      for (const std::uint64_t its : promised_) {
        const std::size_t entry = its >> (64 - next.depth);
        if (entry >= begin << grown && entry < end << grown)
          ++states[entry >= middle ? 1 : 0].promised;
      }
    }
    std::vector<std::uint32_t> table(std::size_t{1} << next.depth);
    for (std::size_t i = 0; i < table.size(); ++i) {
      const bool is_split = i >= begin << grown && i < end << grown;
      table[i] = is_split ? halves[i >= middle ? 1 : 0] : entries[i >> grown];
    }
    base::store_fence();  // these pages are only written once readers can see that they were freed
    for (const std::size_t half : {0, 1})
      P::write(memory().at(halves[half] * kPageBytes), pages[half].data(), kPageBytes);
    P::write(memory().at(next.page * kPageBytes), table.data(), table.size() * sizeof table[0]);
    P::publish(*root_, next.word());
    for (const std::size_t half : {0, 1}) pages_[halves[half]] = states[half];
    pages_.erase(page);
    free_pages_.push_back(page);
    give_directory(old);
    return {};
  }
  // Takes two pages and a directory, or nothing.
  [[nodiscard]] base::Status take_for_split(IndexRoot& next, std::array<std::uint32_t, 2>& halves) {
    REGROUP_ASSIGN_OR_RETURN(halves[0], take_page());
    base::Result<std::uint32_t> second = take_page();
    base::Result<std::uint32_t> table = second.ok() ? take_directory(next.depth) : second;
    if (table.ok()) {
      halves[1] = *second;
      next.page = *table;
      return {};
    }
    free_pages_.push_back(halves[0]);
    if (second.ok()) free_pages_.push_back(*second);
    return table.status();
  }

  BasicBlocks<P>* blocks_;
  Word* root_;
  std::uint32_t range_;
  std::unordered_map<std::uint32_t, PageState> pages_;  // that were needed
  std::deque<std::uint64_t> promised_;                  // hashes
  std::vector<std::uint32_t> free_pages_;
};

}  // namespace regroup::collective::ps
