// Single-copy operations: the ordinary memory of a member is read in place by its peers (CMA). At
// the first synchronisation point all members exchange addresses; each reads its part, and at the
// second point all report whether they could. If one could not, for whatever reason, the operation
// starts again through the bounce buffers, and this communicator does not try CMA again. A member
// that cannot read because its peer is dead waits for it there like all others. Inputs are intact
// for that: memory that an in-place operation overwrites before all have read it is not exposed.
// communicator.cc explains why exposed memory does not change while it is read.
#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/status.h"
#include "collective/shm/communicator.h"

namespace regroup::collective {
namespace {

constexpr std::size_t kReadAtOnce = 1 << 20;   // between checks of revoke and deadline
constexpr std::size_t kMinScatter = 64 << 10;  // bytes of a block
constexpr std::size_t kMaxPaying =
    8 << 20;  // larger results bypass the cache, which the kernel's stores do not

}  // namespace

bool supports_single_copy(Kind kind) {
  return kind == Kind::kAllgather || kind == Kind::kGather || kind == Kind::kScatter ||
         kind == Kind::kAlltoall || kind == Kind::kBroadcast;
}

// Measured: docs/design/single_copy.md. Elsewhere the bounce buffers are faster: data with several
// readers is read from their shared cache, and members that send and receive at the same time share
// the work.
bool single_copy_pays(Kind kind, std::size_t block, std::size_t ranks) {
  return kind == Kind::kScatter && ranks >= 3 && block >= kMinScatter && block <= kMaxPaying;
}

bool SingleCopy::tries(Kind kind, std::size_t block, std::size_t ranks) {
  if (!possible_ || mode_ == SingleCopyMode::kNever || ranks == 1 || !supports_single_copy(kind))
    return false;
  if (mode_ == SingleCopyMode::kAlways) return true;
  if (!single_copy_pays(kind, block, ranks)) return false;
  std::uint8_t& skips = skips_[static_cast<std::size_t>(kind)];
  if (skips == 0) return true;
  skips -= 1;
  return false;
}

Input SingleCopy::announce(const Offsets& offsets, const RemoteBuffer& memory) {
  announced_ = {offsets, memory};
  return std::as_bytes(std::span(&announced_, 1));
}

// Payload with the memory that peers may read, unless this rank overwrites it before all have read
// it.
Input ShmCommunicator::expose_memory(const Operation& o) {
  const bool overwritten = o.kind == Kind::kAlltoall && o.in.data() == o.out.data();
  RemoteBuffer memory;
  if (plan_.contributes && !overwritten) memory = engine_->sign().expose(contribution_of(o));
  return single_copy_.announce(offsets_, memory);
}

// Reads this rank's parts. Contributions in the arena, and its own, are copied without the kernel.
base::Status ShmCommunicator::read_all(const Pending& pending) {
  const Operation& o = pending.operation;
  const bool receives = o.kind == Kind::kGather      ? rank_ == o.root
                        : o.kind == Kind::kBroadcast ? rank_ != o.root
                                                     : true;
  const std::size_t ranks = buffers_.ranks();
  bool can_read = true;
  for (std::size_t i = 0; receives && i < ranks && can_read; ++i) {
    const std::size_t r =
        (static_cast<std::size_t>(rank_) + i) % ranks;  // each rank starts with another peer
    if (from_root(o.kind) && static_cast<int>(r) != o.root) continue;
    const std::size_t from = is_split(o.kind) ? static_cast<std::size_t>(rank_) * plan_.block : 0;
    const Output to = o.out.subspan(from_root(o.kind) ? 0 : r * plan_.block, plan_.block);
    if (inputs_[r] != nullptr) {
      copy(to.data(), inputs_[r] + from, to.size(), plan_.stores_from(r, rank_));
      continue;
    }
    for (std::size_t at = 0; at < to.size() && can_read; at += kReadAtOnce) {
      REGROUP_RETURN_IF_ERROR(engine_->check());
      if (base::SystemClock().now() >= pending.deadline) {
        return base::deadline_exceeded(
            fmt::format("{}: the memory of rank {} was not read in time in "
                        "generation {}",
                        name_of(o.kind), r, engine_->generation()));
      }
      const Output piece = to.subspan(at, std::min(kReadAtOnce, to.size() - at));
      can_read = single_copy_.read(r, from + at, piece);
    }
  }
  return {};
}

// After the point at which all reported whether they could read.
void ShmCommunicator::collect_votes(Pending& pending) {
  if (single_copy_.count_votes(buffers_.ranks(),
                               [&](std::size_t r) { return sync_.payload_of(r); }))
    return;
  plan_.route = Route::kAsItTravels;
  plan_.first_chunk = 2;
  // One phase more than chunks need, for contributions in the arena, which the last phase reads.
  pending.phases = plan_.first_chunk + (plan_.block + plan_.piece - 1) / plan_.piece + 2;
}

}  // namespace regroup::collective
