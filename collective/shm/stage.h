// The part of the arena that a member's communicators share: chunks on their way to the others, mail, and the
// channels of groups. Written by its member only. A stage is 512 KiB of the arena (core/arena.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collective/shm/lines.h"
#include "core/arena.h"

namespace regroup::collective {

inline constexpr std::size_t kChunk = 128 << 10;  // of a collective operation, per rank and rendezvous
inline constexpr std::size_t kLines = 32;         // that one rendezvous can fill
inline constexpr std::size_t kMailChunk = 44 << 10;
inline constexpr std::size_t kGroups = 32;  // communicators made by split() that a member can hold at a time
inline constexpr std::size_t kTurns = 3;    // chunks in turn: collective/shm/communicator.cc says why three
inline constexpr std::size_t kMaxCores = 1024;

// What a member tells one other about the messages between them. The counts grow as long as `instance`
// stands.
struct alignas(64) Mail {
  std::atomic<std::uint64_t> instance;
  std::atomic<std::uint64_t> posted;   // receives begun: I am ready for that many messages of yours
  std::atomic<std::uint64_t> taken;    // chunks of yours copied out
  std::atomic<std::uint64_t> sent;     // chunks of mine written
  std::atomic<std::uint64_t> offered;  // bytes of my latest message to you; stored before its first `sent`
  std::atomic<std::uint64_t> wanted;   // bytes of my latest receive from you; stored before its `posted`
};

struct Stage {
  static constexpr std::size_t kSkew = 17 * 64;  // equal page offsets of many streams are slow in the cache

  std::array<core::Channel, kGroups> groups;
  std::array<Mail, core::kMaxSlots> mail;  // by the slot of the other
  // A bit for each that the member may run on, since its first operation in a World. Nothing but the way of
  // waiting depends on it.
  alignas(64) std::array<std::atomic<std::uint64_t>, kMaxCores / 64> cores;
  std::array<std::array<DataLine, kLines>, kTurns> lines;
  std::array<std::byte, 16 * kSkew + kTurns * kChunk + 2 * kMailChunk> room;

  // Where the member in `slot`, whose stage this is, puts its chunk of time `time`.
  [[nodiscard]] std::byte* chunk(core::SlotIndex slot, std::uint64_t time) {
    return room.data() + slot % 16 * kSkew + time % kTurns * kChunk;
  }
  [[nodiscard]] DataLine* lines_of_time(std::uint64_t time) { return lines[time % kTurns].data(); }
  [[nodiscard]] std::byte* mail_chunk(core::SlotIndex slot, std::uint64_t number) {
    return chunk(slot, 0) + kTurns * kChunk + number % 2 * kMailChunk;
  }
};
static_assert(sizeof(Stage) <= core::kStageBytes);

[[nodiscard]] inline Stage& stage_of(const core::Arena& arena, core::SlotIndex slot) {
  return *reinterpret_cast<Stage*>(arena.stage(slot).data());
}

}  // namespace regroup::collective
