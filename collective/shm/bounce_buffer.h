// The part of the arena that a member's communicators share: chunks on their way to the others, mail, and the
// channels of groups. Written by its member only.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collective/shm/inline_chunk.h"
#include "core/arena.h"

namespace regroup::collective {

inline constexpr std::size_t kChunk = 128
                                      << 10;  // at most, of a collective operation, per rank and rendezvous
inline constexpr std::size_t kInlineChunks = 32;  // that one rendezvous can fill
inline constexpr std::size_t kMessageChunk = 44 << 10;
inline constexpr std::size_t kGroups = 32;  // communicators made by split() that a member can hold at a time
inline constexpr std::size_t kEpochsInFlight =
    3;  // data in turn: collective/shm/communicator.cc says why three
inline constexpr std::size_t kMaxCores = 1024;

// What a member tells one other about the messages between them. The counts grow as long as `instance`
// stands.
struct alignas(64) PairCounters {
  std::atomic<std::uint64_t> instance;
  std::atomic<std::uint64_t> posted;   // receives begun: I am ready for that many messages of yours
  std::atomic<std::uint64_t> taken;    // chunks of yours copied out
  std::atomic<std::uint64_t> sent;     // chunks of mine written
  std::atomic<std::uint64_t> offered;  // bytes of my latest message to you; stored before its first `sent`
  std::atomic<std::uint64_t> wanted;   // bytes of my latest receive from you; stored before its `posted`
};

struct BounceBuffer {
  static constexpr std::size_t kSkew = 17 * 64;  // equal page offsets of many streams are slow in the cache

  std::array<core::Channel, kGroups> groups;
  std::array<PairCounters, core::kMaxSlots> counters;  // by the slot of the other
  // A bit for each that the member may run on, as of its first operation in generation `cores_of` - 1: the
  // same for all who count them, since plans depend on it.
  alignas(64) std::array<std::atomic<std::uint64_t>, kMaxCores / 64> cores;
  std::atomic<std::uint64_t> cores_of;
  std::array<std::array<InlineChunk, kInlineChunks>, kEpochsInFlight> inline_chunks;
  std::array<std::array<std::byte, kMessageChunk>, 2> message_chunks;
  // Up to the end of the stage, for Turns; less for larger slots.
  alignas(64) std::byte data[];

  static constexpr std::size_t kSkews = 16 * kSkew;
  [[nodiscard]] std::byte* data_of(core::SlotIndex slot) { return data + slot % 16 * kSkew; }
  [[nodiscard]] InlineChunk* inline_chunks_at(std::uint64_t epoch) {
    return inline_chunks[epoch % kEpochsInFlight].data();
  }
  [[nodiscard]] std::byte* message_chunk(std::uint64_t number) { return message_chunks[number % 2].data(); }
};

// Where in the rooms of all members what they write between one rendezvous and the next lies: small data in
// turns of its own, which stay in the caches of those who exchange it, all else one behind the other in a
// ring. To write lines that another core has changed or read and still holds is slow, to write those that
// have gone back to the cache that all share is not: hence large data go around a ring that is larger than a
// core's cache. What that takes from others' caches costs data of a few pages more than it gains them: they
// have a smaller one.
class SlotRing {
  static constexpr std::size_t kSmall = 16 << 10;
  static constexpr std::size_t kMiddle = 32 << 10;
  static constexpr std::size_t kSmallSlots = kEpochsInFlight * kSmall;
  static constexpr std::size_t kMiddleRing = 8 * kMiddle;
  static constexpr std::size_t kMinChunks = kEpochsInFlight + 1;  // of the largest, in a ring

 public:
  static constexpr std::size_t kLargeRing = 2 << 20;  // where a stage has room for it
  static constexpr std::size_t kCompactRing = 5 * kChunk;
  // With so many bytes what one rendezvous places lies apart from what the two before it did, wherever a ring
  // ends.
  static constexpr std::size_t kMinBytes = kSmallSlots + kMinChunks * kChunk;

  explicit SlotRing(std::size_t stage_bytes) {
    const std::size_t end = stage_bytes - sizeof(BounceBuffer) - BounceBuffer::kSkews;
    const std::size_t large =
        std::min(kLargeRing, std::max(end - kSmallSlots - kMiddleRing, kMinChunks * kChunk));
    large_ = {end - large, end, end - large};
    middle_ = {kSmallSlots, std::min(kSmallSlots + kMiddleRing, large_.begin), kSmallSlots};
    max_middle_ = std::min(kMiddle, (middle_.end - middle_.begin) / kMinChunks / 64 * 64);
  }

  // Where `bytes`, at most kChunk, would go at `time`; `tight`: around the first kCompactRing of a ring only.
  [[nodiscard]] std::size_t next(std::uint64_t epoch, std::size_t bytes, bool compact) const {
    if (bytes <= kSmall) return epoch % kEpochsInFlight * kSmall;
    const Ring& ring = bytes <= max_middle_ ? middle_ : large_;
    const std::size_t end = compact ? std::min(ring.begin + kCompactRing, ring.end) : ring.end;
    return ring.next + bytes <= end ? ring.next : ring.begin;
  }
  // All members, with the same.
  void place(std::uint64_t epoch, std::size_t bytes, bool compact) {
    at_[epoch % kEpochsInFlight] = next(epoch, bytes, compact);
    Ring& ring = bytes <= max_middle_ ? middle_ : large_;
    if (bytes > kSmall) ring.next = at_[epoch % kEpochsInFlight] + (bytes + 63) / 64 * 64;
  }
  // What was placed at `time`, not before the two before the last.
  [[nodiscard]] std::size_t at(std::uint64_t epoch) const { return at_[epoch % kEpochsInFlight]; }
  // Memory that large data go around.
  [[nodiscard]] std::size_t capacity() const { return large_.end - large_.begin; }

 private:
  struct Ring {
    std::size_t begin, end, next;
  };
  Ring middle_{}, large_{};
  std::size_t max_middle_ = 0;
  std::array<std::size_t, kEpochsInFlight> at_{};
};
static_assert(sizeof(BounceBuffer) + BounceBuffer::kSkews + SlotRing::kMinBytes <=
              core::stage_bytes(core::kMaxSlots));

[[nodiscard]] inline BounceBuffer& bounce_buffer_of(const core::Arena& arena, core::SlotIndex slot) {
  return *reinterpret_cast<BounceBuffer*>(arena.stage(slot).data());
}

}  // namespace regroup::collective
