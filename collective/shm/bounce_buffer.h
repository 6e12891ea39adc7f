// The bounce buffer of a member: its part of the arena for collectives, with the data that it
// passes to other members, its message counters, and its channels of groups. Only this member
// writes it; all members of the host read it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "collective/shm/inline_chunk.h"
#include "shmem/arena.h"

namespace regroup::collective::shm {

inline constexpr std::size_t kChunk = 128
                                      << 10;  // largest chunk of a collective, per rank and epoch
inline constexpr std::size_t kInlineChunks = 32;  // per rank and epoch
inline constexpr std::size_t kMessageChunk = 44 << 10;
// Greatest number of groups made by split() that a member can hold at a time.
inline constexpr std::size_t kGroups = 32;
// Number of consecutive epochs whose data must not overlap; communicator.cc proves that three do.
inline constexpr std::size_t kEpochsInFlight = 3;
inline constexpr std::size_t kMaxCores = 1024;

// What a member publishes to one peer about the messages between the two. The counts only grow
// while `instance` stays the same.
struct alignas(64) PairCounters {
  std::atomic<std::uint64_t> instance;
  std::atomic<std::uint64_t> posted;  // receives that this member has begun
  std::atomic<std::uint64_t> taken;   // chunks of the peer that this member has copied out
  std::atomic<std::uint64_t> sent;    // chunks that this member has written
  // Bytes of the latest message; stored before its first `sent`.
  std::atomic<std::uint64_t> offered;
  std::atomic<std::uint64_t> wanted;  // bytes of the latest receive; stored before its `posted`
};

struct BounceBuffer {
  // Offsets the data of the slots against each other: streams with equal page offsets collide in
  // the cache.
  static constexpr std::size_t kSkew = 17 * 64;

  std::array<shmem::Channel, kGroups> groups;
  std::array<PairCounters, proto::kMaxSlots> counters;  // by slot of the peer
  // The cores that the member may run on, one bit each, as of its first operation in generation
  // `cores_of` - 1. Fixed within the generation: plans depend on it and must be equal in all
  // members.
  alignas(64) std::array<std::atomic<std::uint64_t>, kMaxCores / 64> cores;
  std::atomic<std::uint64_t> cores_of;
  std::array<std::array<InlineChunk, kInlineChunks>, kEpochsInFlight> inline_chunks;
  std::array<std::array<std::byte, kMessageChunk>, 2> message_chunks;
  // The rest of the bounce buffer, divided by SlotRing. Its usable part is shorter by kSkews, so
  // that all slots have equally much.
  alignas(64) std::byte data[];

  static constexpr std::size_t kSkews = 16 * kSkew;
  [[nodiscard]] std::byte* data_of(proto::SlotIndex slot) { return data + slot % 16 * kSkew; }
  [[nodiscard]] InlineChunk* inline_chunks_at(std::uint64_t epoch) {
    return inline_chunks[epoch % kEpochsInFlight].data();
  }
  [[nodiscard]] std::byte* message_chunk(std::uint64_t number) {
    return message_chunks[number % 2].data();
  }
};

// Places the data of each epoch in the bounce buffers, at the same offset in every member. Small
// data uses three fixed slots, which stay in the caches of the members that exchange it. Larger
// data goes around a ring. Storing to a line that another core's own cache still holds is slow;
// storing to a line that is only in the shared cache is not. So the ring of large data is larger
// than a core's cache. Data of a few pages would lose more by cache misses than it gains; it has a
// smaller ring.
class SlotRing {
  static constexpr std::size_t kSmall = 16 << 10;
  static constexpr std::size_t kMiddle = 32 << 10;
  static constexpr std::size_t kSmallSlots = kEpochsInFlight * kSmall;
  static constexpr std::size_t kMiddleRing = 8 * kMiddle;
  // Number of chunks of the largest size that a ring must hold.
  static constexpr std::size_t kMinChunks = kEpochsInFlight + 1;

 public:
  static constexpr std::size_t kLargeRing = 2 << 20;  // if the bounce buffer is large enough
  static constexpr std::size_t kCompactRing = 5 * kChunk;
  // With at least this many bytes, the data of three consecutive epochs never overlaps, wherever a
  // ring wraps.
  static constexpr std::size_t kMinBytes = kSmallSlots + kMinChunks * kChunk;

  explicit SlotRing(std::size_t bounce_buffer_bytes) {
    const std::size_t end = bounce_buffer_bytes - sizeof(BounceBuffer) - BounceBuffer::kSkews;
    const std::size_t large =
        std::min(kLargeRing, std::max(end - kSmallSlots - kMiddleRing, kMinChunks * kChunk));
    large_ = {end - large, end, end - large};
    middle_ = {kSmallSlots, std::min(kSmallSlots + kMiddleRing, large_.begin), kSmallSlots};
    max_middle_ = std::min(kMiddle, (middle_.end - middle_.begin) / kMinChunks / 64 * 64);
  }

  // The offset at which place() would put `bytes` (at most kChunk) of `epoch`. `compact`: use only
  // the first kCompactRing bytes of a ring.
  [[nodiscard]] std::size_t next(std::uint64_t epoch, std::size_t bytes, bool compact) const {
    if (bytes <= kSmall) return epoch % kEpochsInFlight * kSmall;
    const Ring& ring = bytes <= max_middle_ ? middle_ : large_;
    const std::size_t end = compact ? std::min(ring.begin + kCompactRing, ring.end) : ring.end;
    return ring.next + bytes <= end ? ring.next : ring.begin;
  }
  // Reserves that offset. All members call this with equal arguments.
  void place(std::uint64_t epoch, std::size_t bytes, bool compact) {
    at_[epoch % kEpochsInFlight] = next(epoch, bytes, compact);
    Ring& ring = bytes <= max_middle_ ? middle_ : large_;
    if (bytes > kSmall) ring.next = at_[epoch % kEpochsInFlight] + (bytes + 63) / 64 * 64;
  }
  // The offset reserved for `epoch`, one of the last three.
  [[nodiscard]] std::size_t at(std::uint64_t epoch) const { return at_[epoch % kEpochsInFlight]; }
  // Size in bytes of the ring of large data.
  [[nodiscard]] std::size_t capacity() const { return large_.end - large_.begin; }

 private:
  struct Ring {
    std::size_t begin;
    std::size_t end;
    std::size_t next;
  };
  Ring middle_{}, large_{};
  std::size_t max_middle_ = 0;
  std::array<std::size_t, kEpochsInFlight> at_{};
};
static_assert(sizeof(BounceBuffer) + BounceBuffer::kSkews + SlotRing::kMinBytes <=
              shmem::bounce_buffer_bytes(proto::kMaxSlots));

[[nodiscard]] inline BounceBuffer& bounce_buffer_of(const shmem::Arena& arena,
                                                    proto::SlotIndex slot) {
  return *reinterpret_cast<BounceBuffer*>(arena.bounce_buffer(slot).data());
}

// The bounce buffers of the members of a communicator, and the place of each epoch's data in them.
// Each member has such an object, and all members make the same calls of place(). Used by one
// thread.
class BounceBuffers {
 public:
  // `slots`: the members' slots, by rank. `arena` must outlive it.
  BounceBuffers(const shmem::Arena& arena, std::vector<proto::SlotIndex> slots)
      : slots_(std::move(slots)), ring_(shmem::bounce_buffer_bytes(arena.spec().slots)) {
    for (const proto::SlotIndex slot : slots_) buffers_.push_back(&bounce_buffer_of(arena, slot));
  }

  [[nodiscard]] const std::vector<proto::SlotIndex>& slots() const { return slots_; }
  [[nodiscard]] std::size_t ranks() const { return slots_.size(); }
  // As SlotRing::place() and capacity().
  void place(std::uint64_t epoch, std::size_t bytes, bool compact) {
    ring_.place(epoch, bytes, compact);
  }
  [[nodiscard]] std::size_t capacity() const { return ring_.capacity(); }
  // The chunk of `rank` that was placed for `epoch`, one of the last three.
  [[nodiscard]] std::byte* chunk(std::size_t rank, std::uint64_t epoch) const {
    return buffers_[rank]->data_of(slots_[rank]) + ring_.at(epoch);
  }
  // The place that `rank`'s chunk of `epoch` would have after place().
  [[nodiscard]] std::byte* next_chunk(std::size_t rank, std::uint64_t epoch, std::size_t bytes,
                                      bool compact) const {
    return buffers_[rank]->data_of(slots_[rank]) + ring_.next(epoch, bytes, compact);
  }
  [[nodiscard]] InlineChunk* inline_chunks(std::size_t rank, std::uint64_t epoch) const {
    return buffers_[rank]->inline_chunks_at(epoch);
  }

 private:
  const std::vector<proto::SlotIndex> slots_;
  std::vector<BounceBuffer*> buffers_;  // by rank
  SlotRing ring_;
};

}  // namespace regroup::collective::shm
