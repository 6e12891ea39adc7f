// Single-copy operations: the ordinary memory of a member is read in place by its peers (CMA). At the
// first synchronisation point all members exchange addresses; each reads its part, and at the second
// point all report whether they could. If one could not, for whatever reason, the operation starts again
// through the bounce buffers, and this communicator does not try CMA again. A member that cannot read
// because its peer is dead waits for it there like all others. Inputs are intact for that: memory that an
// in-place operation overwrites before all have read it is not exposed. communicator.cc explains why
// exposed memory does not change while it is read.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collective/shm/communicator.h"

namespace regroup::collective {
namespace {

constexpr std::size_t kReadAtOnce = 1 << 20;  // between checks of revoke and deadline
constexpr std::uint8_t kSkips = 15;
constexpr std::size_t kMinScatter = 64 << 10;  // bytes of a block
constexpr std::size_t kMaxPaying =
    8 << 20;  // larger results bypass the cache, which the kernel's stores do not

}  // namespace

bool supports_single_copy(Kind kind) {
  return kind == Kind::kAllgather || kind == Kind::kGather || kind == Kind::kScatter ||
         kind == Kind::kAlltoall || kind == Kind::kBroadcast;
}

// Measured: docs/design/single_copy.md. Elsewhere the bounce buffers are faster: data with several readers
// is read from their shared cache, and members that send and receive at the same time share the work.
bool single_copy_pays(Kind kind, std::size_t block, std::size_t ranks) {
  return kind == Kind::kScatter && ranks >= 3 && block >= kMinScatter && block <= kMaxPaying;
}

// Called once for each operation.
bool ShmCommunicator::tries_single_copy(const Operation& o) {
  const SingleCopyMode when = engine_->single_copy();
  if (!single_copy_.possible || when == SingleCopyMode::kNever || plan_.is_copied() || size() == 1)
    return false;
  if (!supports_single_copy(o.kind)) return false;
  if (when == SingleCopyMode::kAlways) return true;
  if (!single_copy_pays(o.kind, plan_.block, slots_.size())) return false;
  std::uint8_t& skips = single_copy_.skips[static_cast<std::size_t>(o.kind)];
  if (skips == 0) return true;
  skips -= 1;
  return false;
}

// Payload with the memory that peers may read, unless this rank overwrites it before all have read it.
std::span<const std::byte> ShmCommunicator::expose_memory(const Operation& o) {
  const bool overwritten = o.kind == Kind::kAlltoall && o.in.data() == o.out.data();
  single_copy_.announced = {offsets_, {}};
  if (plan_.contributes && !overwritten) {
    single_copy_.announced.memory = engine_->sign().expose(contribution_of(o));
  }
  return std::as_bytes(std::span(&single_copy_.announced, 1));
}

// After the point at which all exposed their memory. True when every contribution can be read in place.
// Otherwise the next operations of this kind probably cannot either, and skip the extra synchronisation
// point.
bool ShmCommunicator::collect_memory(const Operation& o) {
  single_copy_.memory.resize(slots_.size());
  bool all = true;
  for (std::size_t r = 0; r < slots_.size(); ++r) {
    Announced theirs;
    std::memcpy(&theirs, sync_.payload_of(r), sizeof theirs);
    single_copy_.memory[r] = theirs.memory;
    const bool contributes = !from_root(o.kind) || static_cast<int>(r) == o.root;
    all = all && (!contributes || theirs.offsets.in != kNotInArena || theirs.memory.address != 0);
  }
  if (!all) single_copy_.skips[static_cast<std::size_t>(o.kind)] = kSkips;
  return all;
}

// Reads this rank's parts. Contributions in the arena, and its own, are copied without the kernel.
base::Status ShmCommunicator::read_all(const Pending& pending) {
  const Operation& o = pending.operation;
  const bool receives = o.kind == Kind::kGather      ? rank_ == o.root
                        : o.kind == Kind::kBroadcast ? rank_ != o.root
                                                     : true;
  const std::size_t ranks = slots_.size();
  single_copy_.succeeded = 1;
  for (std::size_t i = 0; receives && i < ranks && single_copy_.succeeded != 0; ++i) {
    const std::size_t r =
        (static_cast<std::size_t>(rank_) + i) % ranks;  // each rank starts with another peer
    if (from_root(o.kind) && static_cast<int>(r) != o.root) continue;
    const std::size_t from = is_split(o.kind) ? static_cast<std::size_t>(rank_) * plan_.block : 0;
    const Output to = o.out.subspan(from_root(o.kind) ? 0 : r * plan_.block, plan_.block);
    if (inputs_[r] != nullptr) {
      copy(to.data(), inputs_[r] + from, to.size(), plan_.stores_from(r, rank_));
      continue;
    }
    for (std::size_t at = 0; at < to.size() && single_copy_.succeeded != 0; at += kReadAtOnce) {
      REGROUP_RETURN_IF_ERROR(engine_->check());
      if (base::SystemClock().now() >= pending.deadline) {
        return base::deadline_exceeded(
            fmt::format("{}: the memory of rank {} was not read in time in "
                        "generation {}",
                        name_of(o.kind), r, engine_->generation()));
      }
      const Output piece = to.subspan(at, std::min(kReadAtOnce, to.size() - at));
      single_copy_.succeeded = cma_read(single_copy_.memory[r], from + at, piece) ? 1 : 0;
    }
  }
  return {};
}

// After the point at which all reported whether they could read.
void ShmCommunicator::collect_votes(Pending& pending) {
  for (std::size_t r = 0; r < slots_.size(); ++r) {
    std::uint64_t succeeded = 0;
    std::memcpy(&succeeded, sync_.payload_of(r), sizeof succeeded);
    single_copy_.possible = single_copy_.possible && succeeded != 0;
  }
  if (single_copy_.possible) {
    single_copy_.done += 1;
    return;
  }
  plan_.route = Route::kAsItTravels;
  plan_.first_chunk = 2;
  // One phase more than chunks need, for contributions in the arena, which the last phase reads.
  pending.phases = plan_.first_chunk + (plan_.block + plan_.piece - 1) / plan_.piece + 2;
}

}  // namespace regroup::collective
