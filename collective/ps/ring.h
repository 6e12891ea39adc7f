// The log ring of a store: entries of pushes, oldest first. An entry is whole, with its CRC, before
// its header word is written; the line after it is cleared before that, so a successor that walks
// from the tail never takes old bytes for an entry. Pushes leave room for a discard of each range.
// Only the holder of the ShardLock uses it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>

#include "base/crc32c.h"
#include "base/status.h"
#include "collective/ps/store_layout.h"

namespace regroup::collective::ps {

enum class EntryKind : std::uint32_t {
  kPush,
  kDiscard,  // pushes of its range in the log with a higher LSN are void
};

struct EntryHeader {
  Word word;          // sequence number << 32 | lines of the entry; kWrap lines: go on at line 0
  std::uint32_t crc;  // CRC32C of the sequence number, of the rest of the header and of the payload
  std::uint32_t range;
  std::uint64_t lsn;
  std::uint64_t epoch;
  std::uint64_t client;
  std::uint64_t number;  // of the push, in its client
  double lr;
  std::uint64_t keys;
  std::uint64_t gradient_bytes;
  EntryKind kind;
  std::uint32_t reserved;
};
static_assert(sizeof(EntryHeader) == 80);

// The fields of an entry that its writer chooses.
struct EntryFields {
  std::uint32_t range = 0;
  std::uint64_t lsn = 0;
  std::uint64_t epoch = 0;
  std::uint64_t client = 0;
  std::uint64_t number = 0;
  double lr = 0;
  EntryKind kind = EntryKind::kPush;
};

// An entry in the ring. The spans are valid until release().
struct LogEntry {
  EntryFields fields;
  std::span<const std::uint64_t> positions;
  std::span<const std::byte> gradients;
};

template <class P>
class BasicRing {
 public:
  explicit BasicRing(const StoreMemory& memory)
      : header_(&header_of(memory)),
        lines_(header_->ring_bytes / kLineBytes),
        base_(memory.at(HeadLayout(*header_).ring)) {}

  // Reads all entries after the tail. kDataLoss: an entry's CRC is wrong.
  [[nodiscard]] base::Status recover() {
    const std::uint64_t tail = header_->ring_tail.load(std::memory_order_acquire);
    sequence_ = static_cast<std::uint32_t>(tail >> 32);
    line_ = tail & kLow;
    entries_.clear();
    used_ = 0;
    while (true) {
      const std::uint64_t word = at(line_)->word.load(std::memory_order_acquire);
      if (word == 0 || static_cast<std::uint32_t>(word >> 32) != sequence_) return {};
      std::uint64_t lines = word & kLow;
      if (lines == kWrap) {
        lines = lines_ - line_;
      } else if (lines == 0 || lines > lines_ - line_ || lines != lines_of(*at(line_)) ||
                 at(line_)->crc != crc_of(*at(line_), sequence_)) {
        return base::data_loss(fmt::format(
            "store: entry {} of the log ring at line {}: CRC or size is wrong", sequence_, line_));
      }
      push(lines, (word & kLow) != kWrap);
      if (used_ > lines_)
        return base::data_loss("store: the entries of the log ring are longer than it");
    }
  }

  // Pushes leave so much room from now on that each of `ranges` can be discarded from. False: the
  // ring is too small for so many; nothing is changed.
  [[nodiscard]] bool keep_room_for(std::size_t ranges) {
    // A discard has two lines; the first one may begin at line 0 and leave two lines unused.
    const std::uint64_t lines = 2 * ranges + 2;
    if (lines > lines_ / 4) return false;
    kept_ = lines;
    return true;
  }
  // True if a push of this size fits into an empty ring.
  [[nodiscard]] bool can_ever_fit(std::uint64_t keys, std::uint64_t gradient_bytes) const {
    return 2 * size_of_entry(keys, gradient_bytes) + 1 + kept_ <= lines_;
  }
  // Appends an entry. kUnavailable: the ring is full until entries are released.
  [[nodiscard]] base::Result<LogEntry> append(const EntryFields& fields,
                                              std::span<const std::uint64_t> positions,
                                              std::span<const std::byte> gradients) {
    const std::uint64_t lines = size_of_entry(positions.size(), gradients.size());
    const bool wraps = lines + 1 > lines_ - line_;
    // One line stays free: the cleared one after the newest entry.
    const std::uint64_t free = 1 + (fields.kind == EntryKind::kDiscard ? 0 : kept_);
    if (used_ + lines + (wraps ? lines_ - line_ : 0) + free > lines_) {
      return base::unavailable(
          fmt::format("store: the log ring of {} bytes is full", lines_ * kLineBytes));
    }
    if (wraps) {
      P::publish(at(0)->word, 0);
      P::publish(at(line_)->word, static_cast<std::uint64_t>(sequence_) << 32 | kWrap);
      push(lines_ - line_, false);
    }
    EntryHeader* const entry = at(line_);
    auto* const bytes = reinterpret_cast<std::byte*>(entry);
    P::publish(at(line_ + lines)->word, 0);
    EntryHeader header{.word = 0,
                       .crc = 0,
                       .range = fields.range,
                       .lsn = fields.lsn,
                       .epoch = fields.epoch,
                       .client = fields.client,
                       .number = fields.number,
                       .lr = fields.lr,
                       .keys = positions.size(),
                       .gradient_bytes = gradients.size(),
                       .kind = fields.kind,
                       .reserved = 0};
    P::write(bytes + sizeof(Word), reinterpret_cast<const std::byte*>(&header) + sizeof(Word),
             sizeof header - sizeof(Word));
    if (!positions.empty()) P::write(bytes + kKeysAt, positions.data(), positions.size_bytes());
    if (!gradients.empty())
      P::write(bytes + gradients_at(positions.size()), gradients.data(), gradients.size());
    const std::uint32_t crc = crc_of(*entry, sequence_);
    P::write(&entry->crc, &crc, sizeof crc);
    P::publish(entry->word, static_cast<std::uint64_t>(sequence_) << 32 | lines);
    push(lines, true);
    return read(entry);
  }

  // Calls visit(entry) for each entry, oldest first.
  template <class Visit>
  void each(Visit visit) const {
    for (const Kept& kept : entries_) {
      if (kept.is_entry) visit(read(at(kept.line)));
    }
  }
  // Drops the oldest entries while done(entry) is true.
  template <class Done>
  void release(Done done) {
    std::uint64_t tail = header_->ring_tail.load(std::memory_order_relaxed);
    const std::uint64_t before = tail;
    while (!entries_.empty()) {
      const Kept& oldest = entries_.front();
      if (oldest.is_entry && !done(read(at(oldest.line)))) break;
      const std::uint64_t line = oldest.line + oldest.lines;
      tail = (((tail >> 32) + 1) & kLow) << 32 | (line == lines_ ? 0 : line);
      used_ -= oldest.lines;
      entries_.pop_front();
    }
    if (tail != before) P::publish(header_->ring_tail, tail);
  }
  [[nodiscard]] std::size_t entries() const { return entries_.size(); }

 private:
  static constexpr std::uint64_t kLow = 0xffffffff, kWrap = kLow;
  static constexpr std::uint64_t kKeysAt = 2 * kLineBytes;

  struct Kept {
    std::uint64_t line;
    std::uint64_t lines;
    bool is_entry;  // false: the rest of the ring that a wrapped entry did not fit in
  };

  [[nodiscard]] EntryHeader* at(std::uint64_t line) const {
    return reinterpret_cast<EntryHeader*>(base_ + line * kLineBytes);
  }
  static std::uint64_t gradients_at(std::uint64_t keys) {
    return (kKeysAt + keys * sizeof(std::uint64_t) + kLineBytes - 1) / kLineBytes * kLineBytes;
  }
  static std::uint64_t size_of_entry(std::uint64_t keys, std::uint64_t gradient_bytes) {
    return (gradients_at(keys) + gradient_bytes + kLineBytes - 1) / kLineBytes;
  }
  // 0 if the header's numbers cannot be true.
  [[nodiscard]] std::uint64_t lines_of(const EntryHeader& entry) const {
    const std::uint64_t most = lines_ * kLineBytes;
    if (entry.keys > most / sizeof(std::uint64_t) || entry.gradient_bytes > most) return 0;
    return size_of_entry(entry.keys, entry.gradient_bytes);
  }
  static std::uint32_t crc_of(const EntryHeader& entry, std::uint32_t sequence) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&entry);
    std::uint32_t crc = base::crc32c(std::as_bytes(std::span(&sequence, 1)));
    crc = base::crc32c({bytes + 12, sizeof(EntryHeader) - 12}, crc);
    crc = base::crc32c({bytes + kKeysAt, entry.keys * sizeof(std::uint64_t)}, crc);
    return base::crc32c({bytes + gradients_at(entry.keys), entry.gradient_bytes}, crc);
  }
  static LogEntry read(const EntryHeader* entry) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(entry);
    return {{entry->range, entry->lsn, entry->epoch, entry->client, entry->number, entry->lr,
             entry->kind},
            {reinterpret_cast<const std::uint64_t*>(bytes + kKeysAt), entry->keys},
            {bytes + gradients_at(entry->keys), entry->gradient_bytes}};
  }
  void push(std::uint64_t lines, bool is_entry) {
    entries_.push_back({line_, lines, is_entry});
    used_ += lines;
    line_ = line_ + lines == lines_ ? 0 : line_ + lines;
    ++sequence_;
  }

  StoreHeader* header_;
  std::uint64_t lines_;
  std::byte* base_;
  std::deque<Kept> entries_;
  std::uint64_t used_ = 0;  // lines of entries_
  std::uint64_t kept_ = 0;  // lines that pushes leave free
  std::uint64_t line_ = 0;  // where the next entry goes
  std::uint32_t sequence_ = 0;
};

}  // namespace regroup::collective::ps
