// Implements docs/design/catch_up.md. Reads the progress of members from their slots in the arena.
#include "membership/agent/transfer_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/crc32c.h"

namespace regroup::membership {
namespace {

constexpr std::size_t kChunksAtOnce = 4;
// Steps between the request and the snapshot's step: a member that sees the request has at least a
// whole step left.
constexpr proto::Step kAhead = 2;

template <class Take>
void for_each_member(const shmem::Arena& arena, Take take) {
  for (proto::SlotIndex slot = 0; slot < arena.spec().slots; ++slot) {
    const shmem::MemberSlot& member_slot = arena.member_slot(slot);
    if (member_slot.occupied.load(std::memory_order_acquire) != 0) take(member_slot);
  }
}

}  // namespace

bool snapshot_in_use(const shmem::Arena& arena) {
  bool used = false;
  for_each_member(arena, [&](const shmem::MemberSlot& member_slot) {
    used |= member_slot.dead.load(std::memory_order_acquire) == 0 &&
            member_slot.using_snapshot.load(std::memory_order_acquire) != 0;
  });
  return used;
}

base::Result<proto::Step> TransferSource::begin(const shmem::Arena& arena, proto::TransferStep base,
                                                const proto::World& world) {
  const auto cannot = [](std::string why) { return base::unavailable(std::move(why)); };
  end(arena);
  if (arena.spec().kept_results == 0) return cannot("no memory is reserved for past results");
  furthest_ = committed_ = 0;
  if (snapshot_in_use(arena)) return cannot("the snapshot is in use");
  for (const proto::WorldMember& m : world.members) {
    if (m.slot_id.node == arena.spec().node) writers_.push_back(m.slot_id);
  }
  if (writers_.empty()) return cannot("no member of the World is here");
  read_state_words(arena);
  const proto::Step resume = world.resume.step();
  if (base.step == 0) base.step = std::max(furthest_, resume) + kAhead;
  if (base.step <= resume) {
    end(arena);
    return cannot(
        fmt::format("the World resumes from step {}, so a snapshot of step {} would be too old",
                    resume, base.step));
  }
  arena.snapshot_at().store(base.pack(), std::memory_order_seq_cst);
  read_state_words(arena);
  if (furthest_ >= base.step) {
    end(arena);
    return cannot(fmt::format("step {} is passed already", base.step));
  }
  base_ = base;
  kept_up_to_ = base.step;
  return base.step;
}

void TransferSource::read_state_words(const shmem::Arena& arena) {
  for_each_member(arena, [this](const shmem::MemberSlot& member_slot) {
    const proto::StateWord word = shmem::load_state<shmem::RealPolicy>(member_slot.state);
    if (word.phase == proto::Phase::kNone) return;
    furthest_ = std::max(furthest_, word.position.step());
    committed_ = std::max(committed_, proto::committed_up_to(word, 0).step());
  });
}

void TransferSource::check_writers(const shmem::Arena& arena) {
  const auto wrote = [&](const proto::SlotId& slot_id) {
    return arena.member_slot(slot_id.slot).donated_step.load(std::memory_order_acquire) ==
           base_.pack();
  };
  const auto dead = [&](const proto::SlotId& slot_id) {
    return arena.member_slot(slot_id.slot).dead.load(std::memory_order_acquire) != 0;
  };
  if (std::ranges::all_of(writers_, wrote))
    snapshot_ = Snapshot::kComplete;
  else if (std::ranges::any_of(writers_, dead))
    break_off(arena, "a member that wrote the state died");
}

bool TransferSource::poll(const shmem::Arena& arena, proto::Step consumed) {
  if (!active()) return false;
  read_state_words(arena);
  if (!snapshot_complete()) check_writers(arena);
  const proto::Step next = kept_up_to_ + 1;
  if (!active() || next > committed_) return false;
  if (next > std::max(consumed, base_.step) + arena.spec().kept_results && chunk_ == 0) {
    if (furthest_ >= next + 2) break_off(arena, "the learners are slower than the steps");
    return false;
  }
  return copy_next_chunks(arena);
}

bool TransferSource::copy_next_chunks(const shmem::Arena& arena) {
  const proto::Step next = kept_up_to_ + 1;
  const std::span<std::byte> from = arena.result(next), to = arena.kept_result(next);
  const std::span<std::uint32_t> crcs = arena.kept_crcs(next);
  if (chunk_ == 0) arena.kept_step(next).store(0, std::memory_order_release);
  for (std::size_t n = 0; n < kChunksAtOnce && chunk_ < crcs.size(); ++n, ++chunk_) {
    const std::size_t begin = chunk_ * shmem::kSnapshotChunk;
    const std::size_t size = std::min(shmem::kSnapshotChunk, from.size() - begin);
    std::copy_n(from.data() + begin, size, to.data() + begin);
    crcs[chunk_] = base::crc32c(to.subspan(begin, size), proto::result_salt(next));
  }
  // Members write result next + 2 into the same memory, but only after they have opened that step.
  // So the copy is intact if, after copying, no member has opened it.
  std::atomic_thread_fence(std::memory_order_acquire);
  read_state_words(arena);
  if (furthest_ >= next + 2) {
    break_off(arena, fmt::format("the result of step {} was overwritten before it was kept", next));
    return false;
  }
  if (chunk_ < crcs.size()) return true;
  chunk_ = 0;
  kept_up_to_ = next;
  arena.kept_step(next).store(next, std::memory_order_release);
  return kept_up_to_ < committed_;
}

void TransferSource::on_world(const shmem::Arena& arena, const proto::World& world, bool read) {
  if (!active()) return;
  if (!snapshot_complete())
    return break_off(arena, "the members changed while they wrote the state");
  // The donors of this World will write the snapshot of its resume step into the same memory.
  const bool donors = std::ranges::any_of(world.members, &proto::WorldMember::needs_state);
  if (donors && !read) break_off(arena, "the snapshot is needed for a member that does not learn");
  if (donors) snapshot_ = Snapshot::kGone;
}

void TransferSource::break_off(const shmem::Arena& arena, std::string why) {
  arena.snapshot_at().store(0, std::memory_order_seq_cst);
  broken_ = std::move(why);
}

void TransferSource::end(const shmem::Arena& arena) {
  if (arena.mapped()) arena.snapshot_at().store(0, std::memory_order_seq_cst);
  *this = TransferSource();
}

}  // namespace regroup::membership
