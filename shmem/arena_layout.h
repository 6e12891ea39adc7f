// Offsets of the parts of an arena: docs/reference/formats/arena.md. For shmem/arena*.cc only.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>

#include "base/clock.h"
#include "base/memory_limit.h"
#include "shmem/arena.h"

namespace regroup::shmem::arena_layout {

inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint32_t kWorldSlots = 4;
// Offsets the buffers against each other: 16 streams with equal page offsets collide in the cache
// and are 2.3x slower.
inline constexpr std::uint64_t kSkew = 17 * 64;

struct Header {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t slot_shape;
  ArenaSpec spec;
  std::atomic<std::uint32_t> newest_world;
  std::atomic<std::uint64_t> snapshot_used;
  std::atomic<std::uint64_t> snapshot_at;
  std::atomic<std::uint64_t> save;
  std::atomic<std::uint32_t> reserving;  // slot + 1 of the member that reserves memory; 0: none
  std::atomic<std::uint32_t> shared;     // 1: the parts that all slots share are reserved
  std::atomic<std::uint64_t> pieces;     // number of pieces reserved so far: a sign of progress
  // One bit per slot: 1 if fully reserved.
  std::array<std::atomic<std::uint64_t>, proto::kMaxSlots / 64> all;
  std::uint64_t tail;  // bytes that add_tail() has added

  [[nodiscard]] bool has(proto::SlotIndex slot) const {
    return (all[slot / 64].load(std::memory_order_acquire) >> slot % 64 & 1) != 0;
  }
  void set(proto::SlotIndex slot) {
    all[slot / 64].fetch_or(1ULL << slot % 64, std::memory_order_acq_rel);
  }
};

struct WorldSlot {
  std::atomic<std::uint32_t> generation;
  std::atomic<std::uint32_t> bytes;
};

constexpr std::uint64_t pages(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

inline std::uint64_t world_bytes(const ArenaSpec& spec) {
  return pages(sizeof(WorldSlot) + 4096 + spec.shards * sizeof(proto::SlotId) +
               proto::kMaxMembers * 32ULL);
}

inline std::uint64_t buffer_stride(const ArenaSpec& spec) {
  return pages(spec.result_bytes() + 16 * kSkew);
}

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
      : slots(kPage),
        worlds(slots + pages(s.slots * sizeof(MemberSlot))),
        results(worlds + kWorldSlots * world_bytes(s)),
        buffers(results + 2 * buffer_stride(s)),
        bounce_buffers(buffers + s.slots * s.buffers_per_slot * buffer_stride(s)),
        crcs(bounce_buffers + s.slots * bounce_buffer_bytes(s.slots)),
        snapshot(crcs + pages(snapshot_chunks(s) * sizeof(std::uint32_t))),
        kept_results(snapshot + pages(s.snapshot_bytes)),
        save(kept_results + s.kept_results * kept_stride(s)),
        blocks(save + pages(s.save_bytes)),
        end(blocks + 2 * kPage) {}
  std::uint64_t slots, worlds, results, buffers, bounce_buffers, crcs, snapshot, kept_results, save,
      blocks, end;
};

// Reserves the memory of slots, one slot at a time, since two concurrent reservations would both
// count the same free bytes. The first member also reserves the parts that all slots share: for a
// large state that takes seconds, and the agent must stay responsive. Public for tests, which set
// the limit.
struct Reservation {
  Header& header;
  int fd;
  const ArenaSpec& spec;
  std::function<bool(proto::SlotIndex)> is_dead;  // the slot's owner died during its reservation
  std::function<base::Result<base::MemoryLimit>()> limit = [] { return base::memory_limit(); };
  // How long to wait while another slot's reservation makes no progress.
  base::Duration timeout = std::chrono::seconds(5);

  [[nodiscard]] base::Status reserve_slot(proto::SlotIndex slot);

 private:
  [[nodiscard]] base::Status take_turn(proto::SlotIndex slot);
};

}  // namespace regroup::shmem::arena_layout
