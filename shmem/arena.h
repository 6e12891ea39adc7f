// The arena: one memfd per node, mapped by its agent and its members. Layout, in this order, each
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

// Bytes of a member's bounce buffer (collective/shm/bounce_buffer.h): more than the cache of one
// core, where all of them together, at most `slots`, take no more than a part of the shared cache.
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
  std::uint64_t elements = 0;          // of a leaf and of a result
  std::uint64_t snapshot_bytes = 0;    // most that a member's state can take
  proto::NodeId node = 0;              // of the slots in this arena
  std::uint32_t kept_results = 0;      // of past steps, for learners
  std::uint64_t save_bytes = 0;        // for a state on its way to the disk
  bool operator==(const ArenaSpec&) const = default;

  [[nodiscard]] std::uint64_t result_bytes() const { return elements * element_bytes; }
};

// Bytes of an arena of this shape.
[[nodiscard]] std::uint64_t arena_bytes(const ArenaSpec& spec);

class Arena {
 public:
  // Creates a memfd of the right size and fills in the header; every member slot is free. Fails
  // with kResourceExhausted, naming the bytes requested (those of one slot included), the bytes
  // available and the limit, instead of meeting the OOM killer later. Fast: most memory is reserved
  // by reserve_slot().
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
  // Of step % 2; elements * element_bytes.
  [[nodiscard]] std::span<std::byte> result(proto::Step step) const;
  // Which of kResultBlocks parts of that result are there, by the number of its step, and the last
  // generation in which members began to write it: collective/sum_blocks.h.
  [[nodiscard]] std::span<std::atomic<std::uint32_t>> result_blocks(proto::Step step) const;
  [[nodiscard]] std::atomic<std::uint32_t>& result_generation(proto::Step step) const;
  [[nodiscard]] std::span<std::byte> buffer(proto::SlotIndex slot, std::uint32_t index) const;
  // bounce_buffer_bytes().
  [[nodiscard]] std::span<std::byte> bounce_buffer(proto::SlotIndex slot) const;
  [[nodiscard]] std::span<std::byte> snapshot() const;
  // Offset of `data` in the arena, equal in all processes that map it; empty if `data` lies
  // elsewhere.
  [[nodiscard]] std::optional<std::uint64_t> offset_of(std::span<const std::byte> data) const;
  // The memory at `offset`, which comes from offset_of() in any process.
  [[nodiscard]] std::byte* at(std::uint64_t offset) const { return base_ + offset; }
  // CRC32C of each kSnapshotChunk of the snapshot, and its true length; written by the donors.
  [[nodiscard]] std::span<std::atomic<std::uint32_t>> snapshot_crcs() const;
  [[nodiscard]] std::atomic<std::uint64_t>& snapshot_used() const;
  // {number of a state transfer 24, step 40}: members write their part of the state after that step
  // into the snapshot as they pass it. 0: none is wanted. Set by the agent.
  [[nodiscard]] std::atomic<std::uint64_t>& snapshot_at() const;

  // Results of committed steps, at most kept_results of them: the bytes, which step it is (0: being
  // written) and the CRC32C of each kSnapshotChunk. Written by the agent.
  [[nodiscard]] std::span<std::byte> kept(proto::Step step) const;
  [[nodiscard]] std::atomic<std::uint64_t>& kept_step(proto::Step step) const;
  [[nodiscard]] std::span<std::uint32_t> kept_crcs(proto::Step step) const;

  // A state on its way to the disk, and whose turn it is: shmem/save_mark.h. Empty: no checkpoints
  // are made.
  [[nodiscard]] std::span<std::byte> save_area() const;
  [[nodiscard]] std::atomic<std::uint64_t>& save_word() const;

  // Agent: announces a World to the node. The caller rings.
  [[nodiscard]] base::Status publish_world(const proto::World& world);
  // The generation of the newest World published; 0 before the first.
  [[nodiscard]] proto::Generation newest_world() const;
  // Any thread. kUnavailable if it was overwritten (four newer ones exist), kDataLoss if it does
  // not verify.
  [[nodiscard]] base::Result<proto::World> read_world(proto::Generation generation) const;

  // Agent: assigns `slot`, whose former owner is dead, to member `id`: resets every word and
  // withdraws all seals.
  void assign_slot(proto::SlotIndex slot, proto::MemberId id);
  // Member: locks the robust mutex of its slot with the calling thread, which represents the member
  // until it ends or destroys this arena. Destroyed by another thread, the arena stays mapped.
  [[nodiscard]] base::Status claim_slot(proto::SlotIndex slot);
  // Member: reserves the buffers and the bounce buffer of its slot, unless an earlier owner did;
  // the first member also reserves the parts that all slots share. Fails as create() does.
  [[nodiscard]] base::Status reserve_slot(proto::SlotIndex slot) const;
  // Member: maps every page that it will need, and those of other slots that are reserved, so that
  // a recovery does not pay for page faults. A kernel without MADV_POPULATE_WRITE ignores it.
  void populate(proto::SlotIndex own) const;

 private:
  [[nodiscard]] base::Status reserve_head() const;  // of create()
  [[nodiscard]] std::byte* kept_entry(proto::Step step) const;

  base::Fd fd_;
  ArenaSpec spec_;
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  proto::SlotIndex claimed_ = proto::kMaxSlots;  // kMaxSlots: none
};

// Rings every occupied slot but `except` (kMaxSlots: none).
void ring_all(const Arena& arena, proto::SlotIndex except = proto::kMaxSlots);
// The generation fence (shmem/generation_fence.h): true when every member of an earlier generation
// on this node has left it, by joining a later one or by dying. Nobody may write a result or a
// snapshot of `g` before.
[[nodiscard]] bool all_left_before(const Arena& arena, proto::Generation g);

}  // namespace regroup::shmem
