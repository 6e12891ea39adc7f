// Donors and joining members. The snapshot belongs to one generation; a reader of an older one
// announces itself in `using_snapshot`.
#include "elastic/state_donation.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "elastic/donors.h"
#include "proto/transfer_step.h"

namespace regroup::elastic {
namespace {

using base::Status;

constexpr std::uint32_t kNoSalt = 0;

// The pieces of memory whose concatenation is the state.
template <class Byte>
using SpansOf = std::vector<std::span<Byte>>;

template <class Byte>
std::uint64_t total_bytes(const SpansOf<Byte>& pieces) {
  std::uint64_t total = 0;
  for (const auto& piece : pieces) total += piece.size();
  return total;
}

// Calls take(part) for the parts of bytes [begin, end) of the concatenated pieces, in order.
template <class Byte, class Take>
void for_each_part(const SpansOf<Byte>& pieces, std::uint64_t begin, std::uint64_t end, Take take) {
  std::uint64_t at = 0;
  for (const auto& piece : pieces) {
    const std::uint64_t from = std::max(begin, at);
    const std::uint64_t to = std::min<std::uint64_t>(end, at + piece.size());
    if (from < to) take(piece.subspan(from - at, to - from));
    at += piece.size();
  }
}

std::span<std::byte> bytes_of(shmem::Arena& arena, std::uint64_t chunk, std::uint64_t used) {
  const std::uint64_t begin = chunk * shmem::kSnapshotChunk;
  return arena.snapshot().subspan(begin,
                                  std::min<std::uint64_t>(shmem::kSnapshotChunk, used - begin));
}

std::uint32_t donors_crc(const shmem::Arena& arena, std::uint64_t chunk) {
  return arena.snapshot_crcs()[chunk].load(std::memory_order_relaxed);
}

Status verify_chunk(shmem::Arena& arena, std::uint64_t chunk, std::uint64_t used,
                    std::uint32_t salt) {
  const std::uint32_t want = donors_crc(arena, chunk);
  if (const std::uint32_t got = base::crc32c(bytes_of(arena, chunk, used), salt); got != want) {
    return {base::Code::kDataLoss,
            fmt::format("state: chunk {} of the snapshot: got CRC32C {:08x}, expected {:08x}",
                        chunk, got, want)};
  }
  return {};
}

// Checks a chunk of the joining member's own state against the CRC of its donor.
template <class Byte>
Status prove_chunk(const shmem::Arena& arena, const SpansOf<Byte>& own, std::uint64_t chunk,
                   std::uint64_t used, std::uint32_t salt) {
  const std::uint64_t begin = chunk * shmem::kSnapshotChunk;
  std::uint32_t crc = salt;
  for_each_part(own, begin, std::min(begin + shmem::kSnapshotChunk, used),
                [&](auto part) { crc = base::crc32c(part, crc); });
  if (crc == donors_crc(arena, chunk)) return {};
  return base::data_loss(
      fmt::format("state: chunk {} differs after loading from what the World provided", chunk));
}

// Copies a chunk to its destination and proves it there while it is in the cache: one pass over
// memory, not three.
Status land_chunk(shmem::Arena& arena, const SpansOf<std::byte>& own, std::uint64_t chunk,
                  std::uint64_t used, std::uint32_t salt) {
  const std::span<const std::byte> from = bytes_of(arena, chunk, used);
  const std::uint64_t begin = chunk * shmem::kSnapshotChunk;
  const std::byte* at = from.data();
  for_each_part(own, begin, begin + from.size(), [&](std::span<std::byte> part) {
    std::copy_n(at, part.size(), part.data());
    at += part.size();
  });
  Status proved = prove_chunk(arena, own, chunk, used, salt);
  if (!proved.ok())
    // If this fails, the donor is at fault, not the copy.
    REGROUP_RETURN_IF_ERROR(verify_chunk(arena, chunk, used, salt));
  return proved;
}

// Calls take(chunk, used) for each chunk as soon as its donor is done, while others still write.
// Returns the state's length, `used`.
template <class Take>
base::Result<std::uint64_t> receive_chunks(Participant& self, Take take) {
  shmem::Arena& arena = self.arena();
  const auto donors = writers_of_snapshot(self.world(), self.slot_id().node);
  std::vector<std::size_t> pending(donors.size());
  std::iota(pending.begin(), pending.end(), 0);
  std::optional<std::uint64_t> used;
  while (!pending.empty()) {
    auto next = pending.end();
    const auto one_donated = [&] {
      next = std::find_if(pending.begin(), pending.end(), [&](std::size_t donor) {
        return arena.member_slot(donors[donor].slot).donated.load(std::memory_order_acquire) ==
               self.world().generation;
      });
      return next != pending.end();
    };
    REGROUP_RETURN_IF_ERROR(self.wait(
        one_donated, "state: a member of the World did not write its share of the snapshot"));
    const std::uint64_t length = arena.snapshot_used().load(std::memory_order_relaxed);
    if (length > arena.snapshot().size() || length != used.value_or(length))
      return base::data_loss("state: the snapshot's length is damaged");
    used = length;
    const Chunks share = share_of(*next, donors.size(), length);
    for (std::uint64_t chunk = share.begin; chunk < share.end; ++chunk) {
      if (self.revoked()) return base::revoked("state: revoked while adopting");
      REGROUP_RETURN_IF_ERROR(take(chunk, length));
    }
    pending.erase(next);
  }
  return used.value_or(0);
}

Status prove_state(shmem::Arena& arena, State& state, std::uint64_t used, std::uint32_t salt) {
  REGROUP_ASSIGN_OR_RETURN(auto pieces, state.save());
  if (total_bytes(pieces) != used) {
    return base::data_loss(fmt::format("state: {} bytes after loading, expected {} as in the World",
                                       total_bytes(pieces), used));
  }
  for (std::uint64_t chunk = 0; chunk < chunks_of(used); ++chunk)
    REGROUP_RETURN_IF_ERROR(prove_chunk(arena, pieces, chunk, used, salt));
  return {};
}

Status load_and_prove(Participant& self, State& state) {
  shmem::Arena& arena = self.arena();
  std::optional<SpansOf<std::byte>> own;  // destination of the chunks, if the state is plain memory
  // Before its first step a member counts as having the state, even if its copy is incomplete.
  bool may_tear = self.world().resume.step() > 0;
  const auto used = receive_chunks(self, [&](std::uint64_t chunk, std::uint64_t length) {
    if (std::exchange(may_tear, false)) own = state.memory_of(length);
    if (own && total_bytes(*own) != length)
      return base::internal_error("state: memory_of() returned another size than it was asked for");
    return own ? land_chunk(arena, *own, chunk, length, kNoSalt)
               : verify_chunk(arena, chunk, length, kNoSalt);
  });
  if (!used.ok()) return used.status();
  if (own) return {};
  REGROUP_RETURN_IF_ERROR(state.load(arena.snapshot().first(*used)));
  return prove_state(arena, state, *used, kNoSalt);
}

// False: revoked meanwhile.
bool write_share(Participant& self, const SpansOf<const std::byte>& pieces, Chunks share,
                 std::uint64_t used, std::uint32_t salt) {
  shmem::Arena& arena = self.arena();
  arena.snapshot_used().store(used, std::memory_order_relaxed);
  for (std::uint64_t chunk = share.begin; chunk < share.end; ++chunk) {
    if (self.revoked()) return false;
    const std::uint64_t begin = chunk * shmem::kSnapshotChunk;
    const auto out = bytes_of(arena, chunk, used);
    std::byte* to = out.data();
    for_each_part(pieces, begin, begin + out.size(),
                  [&](auto part) { to = std::copy(part.begin(), part.end(), to); });
    arena.snapshot_crcs()[chunk].store(base::crc32c(out, salt), std::memory_order_relaxed);
  }
  return true;
}

}  // namespace

// Donors pass no generation fence: a slow donor of g may still store while donors of g+1 write, but
// it stores the same bytes. It has voted neither in g nor in g+1, so no step commits while it
// stores; if it is excluded, no result of g+1 is written before it is dead.
Status no_old_readers(Participant& self) {
  const proto::Generation g = self.world().generation;
  const auto none = [&] {
    for (proto::SlotIndex slot = 0; slot < self.arena().spec().slots; ++slot) {
      const shmem::MemberSlot& own = self.arena().member_slot(slot);
      const proto::Generation adopting = own.using_snapshot.load(std::memory_order_acquire);
      if (own.has_living_member() && adopting != 0 && adopting < g) return false;
    }
    return true;
  };
  return self.wait(none, "state: a new member of an earlier generation still reads the snapshot");
}

Status donate_state(Participant& self, State& state) {
  shmem::Arena& arena = self.arena();
  const auto donors = writers_of_snapshot(self.world(), self.slot_id().node);
  if (donors.empty()) return {};
  const auto mine =
      static_cast<std::size_t>(std::ranges::find(donors, self.slot_id()) - donors.begin());
  REGROUP_ASSIGN_OR_RETURN(auto pieces, state.save());
  const std::uint64_t used = total_bytes(pieces);
  if (used > arena.snapshot().size()) {
    return base::resource_exhausted(
        fmt::format("state: {} bytes, expected at most the {} reserved at join()", used,
                    arena.snapshot().size()));
  }
  REGROUP_RETURN_IF_ERROR(no_old_readers(self));
  if (!write_share(self, pieces, share_of(mine, donors.size(), used), used, kNoSalt))
    return base::revoked("state: revoked while donating");
  self.own_slot().donated.store(self.world().generation, std::memory_order_release);
  shmem::ring_all(arena, self.slot_id().slot);
  return {};
}

Status adopt_state(Participant& self, State& state) {
  shmem::MemberSlot& own = self.own_slot();
  const proto::Generation g = self.world().generation;
  own.using_snapshot.store(g, std::memory_order_seq_cst);
  Status status = load_and_prove(self, state);
  // Donors of a later generation may have overwritten what was being read: then this generation is
  // revoked. The fence orders those reads before the check.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (self.revoked()) status = {base::Code::kRevoked, fmt::format("generation {} is over", g)};
  if (status.ok()) own.proved.store(g, std::memory_order_release);
  own.using_snapshot.store(0, std::memory_order_release);
  shmem::ring_all(self.arena(), self.slot_id().slot);
  return status;
}

Status donate_to_transfer(Participant& self, State& state, proto::Step applied) {
  shmem::Arena& arena = self.arena();
  shmem::MemberSlot& own = self.own_slot();
  // TransferSource::begin() reads our state word after its store.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto mark =
      proto::TransferStep::unpack(arena.snapshot_at().load(std::memory_order_seq_cst));
  if (mark.transfer == 0 || mark.step != applied) return {};
  if (applied <= self.world().resume.step())
    return {};  // some members of the World do not have that state
  if (own.donated_step.load(std::memory_order_relaxed) == mark.pack()) return {};
  const auto writers = members_on(self.world(), self.slot_id().node);
  const auto mine = std::ranges::find(writers, self.slot_id());
  auto pieces = state.save();
  if (mine == writers.end() || !pieces.ok()) return pieces.status();
  const std::uint64_t used = total_bytes(*pieces);
  if (used > arena.snapshot().size()) return {};  // the source ends a transfer that lacks a share
  // Donors of a later World wait until this is over.
  own.using_snapshot.store(self.world().generation, std::memory_order_seq_cst);
  const auto share =
      share_of(static_cast<std::size_t>(mine - writers.begin()), writers.size(), used);
  const bool written = write_share(self, *pieces, share, used, proto::snapshot_salt(mark.transfer));
  if (written) own.donated_step.store(mark.pack(), std::memory_order_release);
  own.using_snapshot.store(0, std::memory_order_release);
  shmem::ring_all(arena, self.slot_id().slot);
  return {};
}

base::Result<proto::Step> load_snapshot(Participant& self, State& state) {
  shmem::Arena& arena = self.arena();
  shmem::MemberSlot& own = self.own_slot();
  own.using_snapshot.store(std::max(arena.newest_world(), 1U), std::memory_order_seq_cst);
  const std::uint64_t transfer = own.transfer.load(std::memory_order_seq_cst);
  const auto mark = proto::TransferStep::unpack(transfer);
  const auto called_off = [&] {
    return transfer == 0 || own.transfer.load(std::memory_order_acquire) != transfer;
  };
  const auto load = [&]() -> Status {
    const std::uint64_t used = arena.snapshot_used().load(std::memory_order_relaxed);
    if (used > arena.snapshot().size())
      return base::data_loss("state: the snapshot's length is damaged");
    const std::uint32_t salt = proto::snapshot_salt(mark.transfer);
    for (std::uint64_t chunk = 0; chunk < chunks_of(used) && !called_off(); ++chunk)
      REGROUP_RETURN_IF_ERROR(verify_chunk(arena, chunk, used, salt));
    if (called_off()) return {};
    REGROUP_RETURN_IF_ERROR(state.load(arena.snapshot().first(used)));
    return called_off() ? Status() : prove_state(arena, state, used, salt);
  };
  const Status loaded = load();
  std::atomic_thread_fence(std::memory_order_acquire);
  const bool stale = called_off();
  own.using_snapshot.store(0, std::memory_order_release);
  shmem::ring_all(arena, self.slot_id().slot);
  if (stale) return base::unavailable("the state transfer was cancelled");
  own.replayed.store(proto::TransferStep{mark.transfer, loaded.ok() ? mark.step : 0}.pack(),
                     std::memory_order_release);
  if (!loaded.ok()) return loaded;
  return mark.step;
}

bool result_is_sound(const shmem::Arena& arena, proto::Step step) {
  const std::span<const std::byte> bytes = arena.kept_result(step);
  const std::span<const std::uint32_t> crcs = arena.kept_crcs(step);
  for (std::size_t chunk = 0; chunk < crcs.size(); ++chunk) {
    const std::size_t begin = chunk * shmem::kSnapshotChunk;
    const std::size_t size = std::min(shmem::kSnapshotChunk, bytes.size() - begin);
    if (base::crc32c(bytes.subspan(begin, size), proto::result_salt(step)) != crcs[chunk])
      return false;
  }
  return true;
}

}  // namespace regroup::elastic
