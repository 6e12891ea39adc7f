// Where the parts of an arena lie: docs/formats/arena.md. For core/arena*.cc only.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>

#include "core/arena.h"
#include "core/clock.h"
#include "core/memory_limit.h"

namespace regroup::core::arena_layout {

inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint32_t kWorldSlots = 4;
inline constexpr std::uint64_t kSkew = 17 * 64;  // equal page offsets of 16 streams are 2.3x slower in cache

struct Header {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t slot_shape;
  ArenaSpec spec;
  std::atomic<std::uint32_t> newest_world;
  std::atomic<std::uint64_t> snapshot_used, snapshot_at, save;
  std::atomic<std::uint32_t> reserving;                        // slot + 1 of whose owner is reserving memory
  std::atomic<std::uint32_t> shared;                           // 1: what all lines share has been reserved
  std::atomic<std::uint64_t> pieces;                           // that have been
  std::array<std::atomic<std::uint64_t>, kMaxSlots / 64> all;  // bits of lines that have all of theirs

  [[nodiscard]] bool has(SlotIndex slot) const {
    return (all[slot / 64].load(std::memory_order_acquire) >> slot % 64 & 1) != 0;
  }
  void set(SlotIndex slot) { all[slot / 64].fetch_or(1ULL << slot % 64, std::memory_order_acq_rel); }
};

struct WorldSlot {
  std::atomic<std::uint32_t> generation;
  std::atomic<std::uint32_t> bytes;
};

constexpr std::uint64_t pages(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

inline std::uint64_t world_bytes(const ArenaSpec& spec) {
  return pages(sizeof(WorldSlot) + 4096 + spec.shards * sizeof(Seat) + kMaxMembers * 32ULL);
}

inline std::uint64_t buffer_stride(const ArenaSpec& spec) { return pages(spec.result_bytes() + 16 * kSkew); }

inline std::uint64_t snapshot_chunks(const ArenaSpec& spec) {
  return (spec.snapshot_bytes + kSnapshotChunk - 1) / kSnapshotChunk;
}

// A kept result: its step in a page of its own, the CRCs of its chunks, its bytes.
inline std::uint64_t kept_crc_bytes(const ArenaSpec& s) {
  return pages((s.result_bytes() + kSnapshotChunk - 1) / kSnapshotChunk * sizeof(std::uint32_t));
}
inline std::uint64_t kept_stride(const ArenaSpec& s) {
  return kPage + kept_crc_bytes(s) + pages(s.result_bytes());
}

// Offsets of the parts, in the order of the file.
struct Layout {
  explicit Layout(const ArenaSpec& s)
      : lines(kPage),
        worlds(lines + pages(s.slots * sizeof(MemberSlot))),
        results(worlds + kWorldSlots * world_bytes(s)),
        buffers(results + 2 * buffer_stride(s)),
        stages(buffers + s.slots * s.buffers_per_slot * buffer_stride(s)),
        crcs(stages + s.slots * bounce_buffer_bytes(s.slots)),
        snapshot(crcs + pages(snapshot_chunks(s) * sizeof(std::uint32_t))),
        kept(snapshot + pages(s.snapshot_bytes)),
        save(kept + s.kept_results * kept_stride(s)),
        blocks(save + pages(s.save_bytes)),
        end(blocks + 2 * kPage) {}
  std::uint64_t lines, worlds, results, buffers, stages, crcs, snapshot, kept, save, blocks, end;
};

// The memory of lines, one after the other: two that reserve at the same time would both find the same bytes
// free. The first one reserves what all share, too: that of a large state takes seconds, and the agent must
// be heard meanwhile. Public for tests, which know better how much there is.
struct Reservation {
  Header& header;
  int fd;
  const ArenaSpec& spec;
  std::function<bool(SlotIndex)> is_dead;  // its owner cannot go on with it
  std::function<Result<MemoryLimit>()> limit = [] { return memory_limit(); };
  Duration timeout = std::chrono::seconds(5);  // with another line whose memory does not grow

  [[nodiscard]] Status reserve_slot(SlotIndex slot);

 private:
  [[nodiscard]] Status take_turn(SlotIndex slot);
};

}  // namespace regroup::core::arena_layout
