// The arena: one memfd per host, mapped by its agent and its members. Layout, in this order, each
// part page-aligned:
//   header | member slots[slots] | worlds[4] | results[2] | buffers[slots][buffers_per_slot] |
//   bounce buffers[slots] | snapshot | kept[kept_results] | save area
// Every word that two processes touch is a lock-free atomic; bulk data is published by a release
// store of a word. docs/reference/formats/arena.md has the byte offsets.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/fd.h"
#include "base/status.h"
#include "proto/world.h"
#include "shmem/member_slot.h"

namespace regroup::shmem {

inline constexpr std::size_t kSnapshotChunk = 256 << 10;
inline constexpr std::uint32_t kResultBlocks = 1023;

// Size in bytes of a member's bounce buffer (collective/shm/bounce_buffer.h): larger than one
// core's cache, as long as the buffers of all slots together fit in a part of the shared cache.
[[nodiscard]] constexpr std::size_t bounce_buffer_bytes(std::uint32_t slots) {
  constexpr std::size_t kLeast = 768 << 10;
  constexpr std::size_t kMost = 2304 << 10;
  constexpr std::size_t kOfAll = 18 << 20;
  return std::clamp(kOfAll / slots / (64 << 10) * (64 << 10), kLeast, kMost);
}

struct ArenaSpec {
  std::uint32_t slots = 1;
  std::uint32_t shards = 1;            // V
  std::uint32_t buffers_per_slot = 2;  // canonical_buffers(V)
  std::uint32_t element_bytes = 4;     // 4: float, 8: double
  std::uint64_t elements = 0;          // in a leaf, and in a result
  std::uint64_t snapshot_bytes = 0;    // greatest size of a member's state
  proto::NodeId node = 0;              // whose members use this arena
  std::uint32_t kept_results = 0;      // number of past steps whose results are kept for learners
  std::uint64_t save_bytes = 0;        // size of the save area (shmem/save_mark.h); 0: none
  bool operator==(const ArenaSpec&) const = default;

  [[nodiscard]] std::uint64_t result_bytes() const { return elements * element_bytes; }
};

// Bytes of an arena of this shape.
[[nodiscard]] std::uint64_t arena_bytes(const ArenaSpec& spec);

class Arena {
 public:
  // Creates a memfd of the right size and fills in the header; every member slot is free. Returns
  // in milliseconds, since reserve_slot() reserves most of the memory. kResourceExhausted: header
  // and one slot do not fit in memory (an OOM kill later would be worse); the message has the bytes
  // requested, the bytes available and the limit.
  [[nodiscard]] static base::Result<Arena> create(const ArenaSpec& spec);
  // Maps the arena in `memfd` (from the agent) after checking magic, version and size.
  [[nodiscard]] static base::Result<Arena> open(base::Fd memfd);

  Arena() = default;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  [[nodiscard]] const ArenaSpec& spec() const { return spec_; }
  [[nodiscard]] int memfd() const { return fd_.get(); }
  [[nodiscard]] bool mapped() const { return base_ != nullptr; }

  [[nodiscard]] MemberSlot& member_slot(proto::SlotIndex slot) const;
  // The buffer for the result of `step`, elements * element_bytes long; shared by all steps of the
  // same parity.
  [[nodiscard]] std::span<std::byte> result(proto::Step step) const;
  // Per block of that result, the step for which it is complete; and the last generation in which
  // members began to write the result: collective/sum_blocks.h.
  [[nodiscard]] std::span<std::atomic<std::uint32_t>> result_blocks(proto::Step step) const;
  [[nodiscard]] std::atomic<std::uint32_t>& result_generation(proto::Step step) const;
  [[nodiscard]] std::span<std::byte> buffer(proto::SlotIndex slot, std::uint32_t index) const;
  // bounce_buffer_bytes() long.
  [[nodiscard]] std::span<std::byte> bounce_buffer(proto::SlotIndex slot) const;
  [[nodiscard]] std::span<std::byte> snapshot() const;
  // Offset of `data` in the arena, equal in all processes that map it; empty if `data` lies
  // elsewhere.
  [[nodiscard]] std::optional<std::uint64_t> offset_of(std::span<const std::byte> data) const;
  // The memory at `offset`, a value of offset_of() in any process.
  [[nodiscard]] std::byte* at(std::uint64_t offset) const { return base_ + offset; }
  // The CRC32C of each kSnapshotChunk bytes of the snapshot, and the snapshot's length in use. The
  // donors write both.
  [[nodiscard]] std::span<std::atomic<std::uint32_t>> snapshot_crcs() const;
  [[nodiscard]] std::atomic<std::uint64_t>& snapshot_used() const;
  // A proto::TransferStep that the agent sets: as members pass that step, each writes its part of
  // the state after it into the snapshot. 0: no snapshot is requested.
  [[nodiscard]] std::atomic<std::uint64_t>& snapshot_at() const;

  // The ring of the last kept_results results of committed steps, which the agent writes. For the
  // entry of `step`: its bytes, the step that it holds now (0: being written), and the CRC32C of
  // each kSnapshotChunk bytes.
  [[nodiscard]] std::span<std::byte> kept_result(proto::Step step) const;
  [[nodiscard]] std::atomic<std::uint64_t>& kept_step(proto::Step step) const;
  [[nodiscard]] std::span<std::uint32_t> kept_crcs(proto::Step step) const;

  // The state that the checkpoint writer saves, and the word that says who may access it
  // (shmem/save_mark.h). The area is empty if the job makes no checkpoints.
  [[nodiscard]] std::span<std::byte> save_area() const;
  [[nodiscard]] std::atomic<std::uint64_t>& save_word() const;

  // Agent: publishes a World to the members of the host. The caller then rings their doorbells.
  [[nodiscard]] base::Status publish_world(const proto::World& world);
  // The generation of the newest World published; 0 before the first.
  [[nodiscard]] proto::Generation newest_world() const;
  // Any thread. kUnavailable: four newer Worlds have overwritten it. kDataLoss: it does not verify.
  [[nodiscard]] base::Result<proto::World> read_world(proto::Generation generation) const;

  // Agent: assigns `slot`, which is free or whose owner is dead, to member `id`: resets every word
  // and withdraws all seals.
  void assign_slot(proto::SlotIndex slot, proto::MemberId id);
  // Member: locks the robust mutex of its slot. From then on the calling thread stands for the
  // member: when it ends or destroys this Arena, the agent sees the member's death. If another
  // thread destroys this Arena, the memory stays mapped.
  [[nodiscard]] base::Status claim_slot(proto::SlotIndex slot);
  // Member: reserves the buffers and the bounce buffer of its slot, unless an earlier owner did;
  // the first member also reserves the parts that all slots share. Fails as create() does.
  [[nodiscard]] base::Status reserve_slot(proto::SlotIndex slot) const;
  // Member: maps every page that it will need, and those of other slots that are reserved, so that
  // a recovery does not take page faults. Does nothing on a kernel without MADV_POPULATE_WRITE.
  void populate(proto::SlotIndex own) const;

 private:
  [[nodiscard]] base::Status reserve_head() const;  // for create()
  [[nodiscard]] std::byte* kept_entry(proto::Step step) const;

  base::Fd fd_;
  ArenaSpec spec_;
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  proto::SlotIndex claimed_ = proto::kMaxSlots;  // kMaxSlots: none
};

// Rings every occupied slot but `except` (kMaxSlots: none).
void ring_all(const Arena& arena, proto::SlotIndex except = proto::kMaxSlots);
// The generation fence (shmem/generation_fence.h): true once every member of an earlier generation
// on this host has left that generation, by joining a later one or by dying. Until then, no member
// may write a result or a snapshot of `g`.
[[nodiscard]] bool all_left_before(const Arena& arena, proto::Generation g);

}  // namespace regroup::shmem
